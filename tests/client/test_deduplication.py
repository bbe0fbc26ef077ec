import io
import urllib.error

import pytest

from magnetar.client.address import Credentials
from magnetar.client.admin import AdminApi
from magnetar.client.deduplication import ensure_deduplication, ensure_not_created_in_vain
from magnetar.client.errors import DeduplicationError, DeduplicationRefusedError
from magnetar.protocol.topic_name import TopicName

TOPIC = TopicName.parse("persistent://t/n/a b-partition-3")
STATS = "GET /admin/v2/persistent/t/n/a%20b-partition-3/stats"
SWITCH = "POST /admin/v2/persistent/t/n/a%20b/deduplicationEnabled"


class Api(AdminApi):
    """Answers stats with the given states in turn, then always with the last state."""

    def script(self, *states):
        object.__setattr__(self, "_states", list(states))
        object.__setattr__(self, "calls", [])
        object.__setattr__(self, "refusal", None)
        return self

    def refuse_to_switch(self, error):
        object.__setattr__(self, "refusal", error)
        return self

    def call(self, method, path, body=None):
        self.calls.append(f"{method} {path}" + (f" {body.decode()}" if body else ""))
        if method == "POST":
            if self.refusal is not None:
                raise self.refusal
            return None
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        if isinstance(state, Exception):
            raise state
        return {"deduplicationStatus": state}


def ensure(api, **options):
    said = []
    ensure_deduplication(api, TOPIC, **({"enable": False} | options), say=said.append, pause=lambda _: None)
    return said


@pytest.fixture
def api():
    return Api("http://b:8080", Credentials())


def test_on(api):
    assert ensure(api.script("Enabled")) == []
    assert api.calls == [STATS]


def test_recovering_is_waited_for(api):
    ensure(api.script("Initialized", "Recovering", "Enabled"))
    assert api.calls == [STATS] * 3


def test_off_is_refused_and_says_how_to_switch_it_on(api):
    with pytest.raises(DeduplicationError, match="--enable-deduplication"):
        ensure(api.script("Disabled"))
    assert api.calls == [STATS]


def test_off_is_switched_on_for_the_whole_topic_when_asked_to(api):
    assert len(ensure(api.script("Disabled", "Disabled", "Enabled"), enable=True)) == 1
    assert api.calls == [STATS, f"{SWITCH} true", STATS, STATS]


def test_switched_on_without_effect(api):
    with pytest.raises(DeduplicationError, match="not in effect"):
        ensure(api.script("Disabled"), enable=True)


@pytest.mark.parametrize("code", [401, 403])
def test_a_role_that_may_not_read_the_state(api, code):
    with pytest.raises(DeduplicationRefusedError, match="check the token or the rights") as caught:
        ensure(api.script(http_error(code, b'{"reason":"no right"}')))
    assert f'({code}: {{"reason":"no right"}})' in str(caught.value)
    assert "--assume-deduplication" in str(caught.value)
    assert "--admin-url" not in str(caught.value)
    assert caught.value.exit_code == 77


@pytest.mark.parametrize("code", [401, 403])
def test_a_role_that_may_not_switch_it_on(api, code):
    api.script("Disabled").refuse_to_switch(http_error(code, b"no right"))
    with pytest.raises(DeduplicationRefusedError, match="administrator of the tenant") as caught:
        ensure(api, enable=True)
    assert f"({code}: no right)" in str(caught.value)
    assert "--admin-url" not in str(caught.value)
    assert caught.value.exit_code == 77


def test_a_switch_that_fails_for_another_reason(api):
    api.script("Disabled").refuse_to_switch(http_error(500))
    with pytest.raises(DeduplicationError, match="--admin-url") as caught:
        ensure(api, enable=True)
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), ValueError("json")])
def test_no_broker_can_be_reached(api, error):
    with pytest.raises(DeduplicationError, match="--assume-deduplication"):
        ensure(api.script(error))


def http_error(code, body=b""):
    return urllib.error.HTTPError("u", code, "text", {}, io.BytesIO(body))


NEW = "/admin/v2/namespaces/t/n/deduplication"
RUNTIME = "/admin/v2/brokers/configuration/runtime"


class Tree(AdminApi):
    """Answers from a table of paths."""

    def script(self, answers):
        object.__setattr__(self, "_answers", answers)
        return self

    def call(self, method, path, body=None):
        assert method == "GET", "the question changes nothing"
        found = self._answers[path]
        if isinstance(found, Exception):
            raise found
        return found


def not_in_vain(answers, *, enable=False):
    admin = Tree("http://b:8080", Credentials()).script({STATS.removeprefix("GET "): http_error(404)} | answers)
    return ensure_not_created_in_vain(admin, TOPIC, enable=enable)


def test_a_topic_that_exists_is_not_created():
    assert not_in_vain({STATS.removeprefix("GET "): {}}) is True


@pytest.mark.parametrize(
    "answers",
    [
        {NEW: True},
        {NEW: None, RUNTIME: {"brokerDeduplicationEnabled": "true"}},
        {NEW: http_error(404)},
    ],
)
def test_a_topic_that_will_deduplicate_may_be_created(answers):
    assert not_in_vain(answers) is False


def test_it_may_be_created_to_have_deduplication_switched_on():
    assert not_in_vain({}, enable=True) is False


@pytest.mark.parametrize("answers", [{NEW: False}, {NEW: None, RUNTIME: {"brokerDeduplicationEnabled": "false"}}])
def test_no_topic_is_created_to_be_refused(answers):
    with pytest.raises(DeduplicationError, match="--enable-deduplication"):
        not_in_vain(answers)


@pytest.mark.parametrize(
    "answers", [{STATS.removeprefix("GET "): http_error(401)}, {NEW: http_error(401)}, {NEW: None, RUNTIME: OSError()}]
)
def test_no_topic_is_created_while_the_answer_is_open(answers):
    with pytest.raises(DeduplicationError, match="--assume-deduplication"):
        not_in_vain(answers)
