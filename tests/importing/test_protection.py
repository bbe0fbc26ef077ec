"""The protection of imported entries: found, made, or warned about."""

import io
import urllib.error

import pytest

from magnetar.client.address import Credentials
from magnetar.client.admin import AdminApi
from magnetar.importing.progress import Progress
from magnetar.importing.protection import Protect, Protection
from magnetar.importing.topic_session import Target, open_session
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from tests.importing.scripted_broker import KIND, ScriptedBroker, answer, error

TOPIC = TopicName.parse("t")
BASE = "/admin/v2/persistent/public/default/t"
NO_LIMITS = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


class Api(AdminApi):
    """Answers GET from a table; records POST bodies."""

    def script(self, answers):
        object.__setattr__(self, "_answers", answers)
        object.__setattr__(self, "posted", [])
        return self

    def call(self, method, path, body=None):
        if method == "POST":
            self.posted.append((path, body))
            path = f"POST {path}"
        found = self._answers.get(path)
        if isinstance(found, Exception):
            raise found
        return found


def api(subscriptions=None, retention=None, **more):
    answers = {f"{BASE}/stats": {"subscriptions": subscriptions or {}}, f"{BASE}/retention?applied=true": retention}
    return Api("http://b", Credentials()).script(answers | more)


def subscribed(broker, command):
    subscribe = command.subscribe
    assert (subscribe.durable, subscribe.initialPosition) == (True, pb.CommandSubscribe.Earliest)
    broker.subscriptions = [*getattr(broker, "subscriptions", []), subscribe.subscription]
    return answer(KIND.SUCCESS, success=pb.CommandSuccess(request_id=subscribe.request_id))


def closed(broker, command):
    return answer(KIND.SUCCESS, success=pb.CommandSuccess(request_id=command.close_consumer.request_id))


async def protect(admin, wish=Protect.SUBSCRIPTION, times=1, **script):
    """(the protection of the entries, the output, the created subscriptions)."""
    said = io.StringIO()
    script = {"SUBSCRIBE": subscribed, "CLOSE_CONSUMER": closed} | script
    async with ScriptedBroker(**script) as broker:
        session = await open_session(Target(broker.address, Credentials(), TOPIC))
        protection = Protection(TOPIC, admin, wish, "kafka-import", Progress(said))
        for _ in range(times):
            await protection.ensure(session)
        session.close()
        return protection.kept_by, said.getvalue(), getattr(broker, "subscriptions", [])


@pytest.mark.parametrize("wish", Protect)
async def test_a_durable_subscription_suffices(wish):
    kept_by, said, made = await protect(api({"b": {"isDurable": True}, "a": {"isDurable": False}}), wish)
    assert kept_by == "the subscription b"
    assert kept_by in said
    assert made == []


async def test_retention_without_limits_suffices():
    kept_by, _, made = await protect(api(retention=NO_LIMITS))
    assert (kept_by, made) == ("the retention policy (no limits)", [])


@pytest.mark.parametrize("retention", [None, NO_LIMITS | {"retentionSizeInMB": 10}])
async def test_a_subscription_is_made_once(retention):
    kept_by, said, made = await protect(api({"reader": {"isDurable": False}}, retention), times=2)
    assert "kafka-import" in kept_by
    assert said.count("kafka-import") == 1
    assert made == ["kafka-import"]


async def test_retention_is_set_when_wanted():
    admin = api()
    kept_by, _, made = await protect(admin, Protect.RETENTION)
    assert "retention policy" in kept_by
    assert made == []
    assert [path for path, _ in admin.posted] == [f"{BASE}/retention"]


async def test_nothing_is_warned_about():
    kept_by, said, made = await protect(api(), Protect.NONE)
    assert (kept_by, made) == (None, [])
    assert "warning" in said
    assert "--protect subscription" in said


async def test_a_failed_protection_gives_a_warning():
    def refused(broker, command):
        return error(command.subscribe.request_id, pb.AuthorizationError, "no consume")

    kept_by, said, _ = await protect(api(), SUBSCRIBE=refused)
    assert kept_by is None
    assert "no consume" in said
    forbidden = urllib.error.HTTPError("u", 401, "no right", {}, None)
    kept_by, said, _ = await protect(api(**{f"POST {BASE}/retention": forbidden}), Protect.RETENTION)
    assert kept_by is None
    assert "no right" in said


async def test_without_an_admin_address_a_subscription_is_made():
    kept_by, _, made = await protect(api(**{f"{BASE}/stats": ConnectionRefusedError("refused")}))
    assert "kafka-import" in kept_by
    assert made == ["kafka-import"]
