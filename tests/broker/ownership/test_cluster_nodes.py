"""Nodes of brokers and owners, compared with those that Apache Pulsar 4.2.4 wrote."""

import dataclasses
import json

import msgspec
import pytest

from magnetar.broker.ownership.cluster_nodes import (
    BundleOwner,
    Leader,
    LoadReport,
    Usage,
    decode_leader,
    decode_owner,
    decode_report,
    encode_node,
    encode_report,
)
from magnetar.broker.ownership.ownership import BrokerAddresses
from tests.storage.pulsar_layout.golden_nodes import node, nodes

(REPORT_PATH,) = nodes("/loadbalance/brokers")
OWN = BrokerAddresses("pulsar://127.0.0.1:6650", None, "http://127.0.0.1:8080", None)


def test_pulsars_report_is_read():
    report = decode_report(node("serving", REPORT_PATH))
    assert report.addresses == BrokerAddresses("pulsar://127.0.0.1:19651", None, "http://127.0.0.1:19081", None)
    assert report.cpu.limit == 200.0
    assert report.broker_version_string == "4.2.4"
    assert 0 < report.highest_share < 1


def test_ours_has_every_member_of_pulsars_and_no_null():
    ours = encode_report(
        LoadReport(web_service_url=OWN.web_url, pulsar_service_url=OWN.service_url, broker_version_string="Magnetar")
    )
    theirs = json.loads(node("serving", REPORT_PATH))
    assert json.loads(ours).keys() == theirs.keys()
    assert {key: type(value) for key, value in json.loads(ours).items()} == {k: type(v) for k, v in theirs.items()}


@pytest.mark.parametrize(
    "own",
    [
        OWN,
        BrokerAddresses(None, "pulsar+ssl://h:6651", None, "https://h:8443"),
        BrokerAddresses("pulsar://h:6650", "pulsar+ssl://h:6651", "http://h:8080", "https://h:8443"),
    ],
)
def test_a_report_has_all_addresses_of_its_broker(own):
    assert decode_report(encode_report(LoadReport.of(own))).addresses == own


@pytest.mark.parametrize(
    "report",
    [
        LoadReport(),
        LoadReport(web_service_url=OWN.web_url),
        LoadReport(pulsar_service_url=OWN.service_url),
        LoadReport(web_service_url=OWN.web_url, pulsar_service_url=OWN.service_url, broker_version_string=None),
        LoadReport(web_service_url=OWN.web_url, pulsar_service_url=OWN.service_url, cpu=Usage(float("nan"), 1)),
    ],
)
def test_a_report_that_would_stop_the_cluster_is_not_written(report):
    with pytest.raises(ValueError, match=r"cluster|cannot read"):
        encode_report(report)


def test_the_leader_and_owners():
    leader = node("serving", "/loadbalance/leader")
    assert encode_node(decode_leader(leader)) == leader
    assert decode_leader(leader) == Leader("127.0.0.1:19081", "http://127.0.0.1:19081")
    owners = nodes("/namespace/t1/n4/")
    assert len(owners) == 4
    for (value,) in owners.values():
        assert encode_node(decode_owner(value)) == value
    assert decode_owner(encode_node(BundleOwner.of(OWN))).addresses == OWN


def test_bytes_of_others_that_cannot_be_read_are_no_node():
    for garbage in (b"", b"null", b"[]", b"{", b'{"cpu":null}'):
        assert decode_report(garbage) is None
        assert decode_owner(garbage) is None or msgspec.json.decode(garbage) == {"cpu": None}
        assert decode_leader(garbage) is None or msgspec.json.decode(garbage) == {"cpu": None}
    least = b'{"webServiceUrl":"http://h:1","pulsarServiceUrl":"pulsar://h:2","unknown":[1],"pulsarServiceUrlTls":null}'
    assert decode_report(least).addresses == BrokerAddresses("pulsar://h:2", None, "http://h:1", None)


@pytest.mark.parametrize("decode", [decode_report, decode_owner, decode_leader])
@pytest.mark.parametrize(
    "unreadable",
    [
        b'{"pulsarServiceUrl":"\xff","nativeUrl":"\xff","serviceUrl":"\xff"}',
        b'{"unknown":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["no text", "deep"],
)
def test_nodes_that_are_no_text_or_too_deep_are_no_node(decode, unreadable):
    assert decode(unreadable) is None


# --- advertised listeners -----------------------------------------------------------------------------------------

OUTSIDE = BrokerAddresses("pulsar://out:6650", "pulsar+ssl://out:6651", "http://out:8080", None)
LISTENING = dataclasses.replace(OWN, listeners=(("in", BrokerAddresses("pulsar://127.0.0.1:6650")), ("out", OUTSIDE)))
LISTENERS = {
    "in": {"brokerServiceUrl": "pulsar://127.0.0.1:6650"},
    "out": {
        "brokerServiceUrl": "pulsar://out:6650",
        "brokerServiceUrlTls": "pulsar+ssl://out:6651",
        "brokerHttpUrl": "http://out:8080",
    },
}
"""As Apache Pulsar 4.2.4 wrote them for such a setting."""


def test_reports_and_owners_have_the_listeners_of_their_broker():
    for written, read in (
        (encode_report(LoadReport.of(LISTENING)), decode_report),
        (encode_node(BundleOwner.of(LISTENING)), decode_owner),
    ):
        assert json.loads(written)["advertisedListeners"] == LISTENERS
        assert read(written).addresses == LISTENING


def test_a_listener_without_web_addresses_has_those_of_the_broker():
    assert LISTENING.of("") == LISTENING
    assert LISTENING.of("out") == OUTSIDE
    assert LISTENING.of("in").web_url == OWN.web_url
    assert LISTENING.of("none") is None


@pytest.mark.parametrize("listeners", [None, {"in": None}, {"in": 5}, {"in": {"brokerServiceUrl": 5}}])
def test_a_broker_with_a_listener_that_cannot_be_read_is_used_without_it(listeners):
    value = json.dumps(
        {"webServiceUrl": "http://h:1", "pulsarServiceUrl": "pulsar://h:2", "advertisedListeners": listeners}
    )
    assert decode_report(value.encode()).addresses == BrokerAddresses("pulsar://h:2", None, "http://h:1")
