"""Source and sink at a broker that speaks TLS only and wants tokens."""

import base64

import pulsar
import pyarrow as pa
import pytest

from magnetar.client.errors import ClientError
from magnetar.pipeline.errors import CatalogError
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.sink.options import SinkOptions
from magnetar.pipeline.sink.task import Place, send_rows
from magnetar.pytest_plugin import BrokerProcess
from tests.broker.admin.test_admin_server import Certificates
from tests.pipeline.test_read_with_token import KEY, entries, token

TOPIC = "persistent://public/default/over-tls"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def given(certificates, tmp_path_factory):
    """Options of a connection that is trusted and has the rights; through it the sink has sent three messages."""
    certificate, key = certificates.make("localhost")
    settings = {
        "brokerServicePort": "",
        "webServicePort": "",
        "brokerServicePortTls": 0,
        "webServicePortTls": 0,
        "advertisedAddress": "localhost",
        "tlsCertificateFilePath": certificate,
        "tlsKeyFilePath": key,
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "authenticationProviders": "token",
        "tokenSecretKey": "data:;base64," + base64.b64encode(KEY).decode(),
        "superUserRoles": "admin",
        "defaultRetentionTimeInMinutes": -1,
        "defaultRetentionSizeInMB": -1,
    }
    broker = BrokerProcess(tmp_path_factory.mktemp("tls") / "data", settings)
    assert broker.url.startswith("pulsar+ssl://")
    given = {
        "service.url": broker.url,
        "admin.url": broker.http_url,
        "topic": TOPIC,
        "token": token("admin"),
        "pulsar.client.tlsTrustCertsFilePath": certificates.authority[0],
    }
    send(given, ["1", "2", "3"])
    yield given
    broker.stop()


def send(given, values):
    rows = pa.RecordBatch.from_pydict({"value": values})
    return send_rows([rows], SinkOptions.parse(given, streaming=False), Place(0, None, 0))


def test_rows_go_in_and_come_out(given):
    assert entries(SourceOptions.parse(given)) >= 1
    client = pulsar.Client(
        given["service.url"],
        authentication=pulsar.AuthenticationToken(given["token"]),
        tls_trust_certs_file_path=given["pulsar.client.tlsTrustCertsFilePath"],
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    assert [reader.read_next(20_000).data() for _ in range(3)] == [b"1", b"2", b"3"]
    client.close()


def test_a_certificate_of_an_unknown_authority_is_refused(given):
    stranger = {key: value for key, value in given.items() if "tls" not in key}
    with pytest.raises(CatalogError, match=r"(?i)certificate"):
        entries(SourceOptions.parse(stranger))
    with pytest.raises(ClientError, match=r"(?i)certificate"):
        send(stranger | {"sendTimeoutMs": "1000"}, ["4"])
    assert entries(SourceOptions.parse(stranger | {"pulsar.client.tlsAllowInsecureConnection": "true"})) >= 1


def test_rights_count_over_tls_too(given):
    with pytest.raises(CatalogError, match=r"40[13].*check the token"):
        entries(SourceOptions.parse(given | {"token": token("nobody")}))
