"""Reading from a broker that wants tokens: a role without rights, and a token that expires and is renewed."""

import base64
import time

import pulsar
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from magnetar.pipeline.errors import CatalogError
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.planning import ReadRange
from magnetar.pipeline.reading.ranges import RangeReader
from magnetar.pipeline.reading.settings import ReadSettings
from magnetar.pipeline.source_plan import SourcePlan
from magnetar.pytest_plugin import BrokerProcess

KEY = bytes(range(1, 33))
TOPIC = "persistent://public/default/guarded"


def token(role, seconds=3600):
    claims = {"sub": role, "exp": int(time.time()) + seconds}
    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(KEY))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    settings = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProviders": "token",
        "tokenSecretKey": "data:;base64," + base64.b64encode(KEY).decode(),
        "superUserRoles": "admin",
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("guarded") / "data", settings)
    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(broker.url, authentication=pulsar.AuthenticationToken(token("admin")), logger=quiet)
    producer = client.create_producer(TOPIC)
    for k in range(20):
        producer.send(b"%d" % k)
    client.close()
    yield broker
    broker.stop()


def options_of(broker, **more):
    return SourceOptions.parse({"service.url": broker.url, "admin.url": broker.http_url, "topic": TOPIC, **more})


def entries(options):
    """How many entries of the topic are read with these options."""
    plan = SourcePlan(options)
    logs = plan.logs()
    tasks = plan.tasks(plan.starting(logs), plan.ending(logs), logs)
    reader = RangeReader(ReadSettings.of(options))
    return sum(len(chunk) for task in tasks for piece in task for chunk in reader.chunks(piece))


def test_a_token_is_needed_and_its_role_must_have_the_right(guarded):
    with pytest.raises(CatalogError, match=r"401.*check the token"):
        entries(options_of(guarded))
    with pytest.raises(CatalogError, match=r"40[13].*check the token"):
        entries(options_of(guarded, token=token("nobody")))
    assert entries(options_of(guarded, token=token("admin"))) == 20


def test_a_role_that_may_only_consume_reads(guarded):
    options = options_of(guarded, token=token("admin"))
    path = "/admin/v2/persistent/public/default/guarded/permissions/reader"
    options.connect.admin().call("POST", path, b'["consume"]')
    assert entries(options_of(guarded, token=token("reader"))) == 20


def test_a_token_in_a_file_is_read_again_when_it_was_renewed(guarded, tmp_path):
    file = tmp_path / "token"
    file.write_text(token("admin", seconds=-60))
    options = options_of(guarded, token=f"file:{file}")
    with pytest.raises(CatalogError, match="401"):
        entries(options)
    reader = RangeReader(ReadSettings.of(options))
    with pytest.raises(CatalogError, match="401"):
        list(reader.chunks(ReadRange(TOPIC, -1, 0, 20)))
    file.write_text(token("admin"))
    assert entries(options) == 20
    assert sum(len(chunk) for chunk in reader.chunks(ReadRange(TOPIC, -1, 0, 20))) == 20
