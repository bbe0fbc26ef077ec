import tracemalloc

import pytest

from magnetar.protocol import topic_name
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import MAX_NAME_CHARS, NamespaceName, TopicName

V1 = "V1 topic names (with cluster component) are no longer supported."


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("non-persistent://a/b/t", "non-persistent://a/b/t"),
        ("persistent://a-=:.b/c/any thing ü?", "persistent://a-=:.b/c/any thing ü?"),
    ],
)
def test_names_in_every_form(text, full):
    name = TopicName.parse(text)
    assert str(name) == full
    assert TopicName.from_persistence_name(name.persistence_name) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "foo://public/default/t",
        "persistent://public/default",
        "persistent://public//t",
        "persistent://public/de fault/t",
        "public/t",
        "persistent://public/default/a/b",
        "persistent://public/default/",
        "persistent:///default/t",
    ],
)
def test_names_that_are_no_topic(text):
    with pytest.raises(InvalidTopicNameError):
        TopicName.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Invalid topic name: . Topic local name must not be blank."),
        ("p u/b/ ", "Invalid topic name: p u/b/ . Topic local name must not be blank."),
        ("/", "Invalid topic name /"),
        ("//", "Invalid topic name //"),
        ("public//t", "Invalid topic name public//t"),
        ("persistent//public/default/t", "Invalid topic name persistent//public/default/t"),
        (
            "a/b/c/",
            "Invalid short topic name 'a/b/c/', it should be in the format of <tenant>/<namespace>/<topic> or <topic>",
        ),
        ("FOO://a/b/c", "Invalid topic domain: 'FOO'"),
        ("foo://bar", "Invalid topic name foo://bar"),
        ("a://b://c", "Invalid topic name b://c"),
        ("persistent://", "Invalid topic name persistent://"),
        ("persistent:///default/t", "Invalid topic name /default/t"),
        ("persistent://a/b/c/", "Invalid topic name a/b/c/"),
        (
            "persistent://a/b/c/d/e",
            f"{V1} Please use the V2 format: '<domain>://tenant/namespace/topic'. Got: persistent://a/b/c/d/e",
        ),
        ("persistent://public/de fault/t", "Invalid named entity: de fault"),
    ],
)
def test_refused_names_in_the_words_of_apache_pulsar(text, words):
    with pytest.raises(InvalidTopicNameError) as refused:
        TopicName.parse(text)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("local", "partition", "base"),
    [
        ("t-partition-0", 0, "t"),
        ("t-partition-12", 12, "t"),
        ("t-partition-01", -1, "t-partition-01"),
        ("t-partition-x", -1, "t-partition-x"),
    ],
)
def test_partitions(local, partition, base):
    name = TopicName.parse(local)
    assert (name.partition, name.base.local_name, name.is_partition) == (partition, base, partition >= 0)
    if partition >= 0:
        assert name.base.partition_name(partition) == name


@pytest.mark.parametrize("text", ["public", "", "a/b/c", "public/no such", "/b", "a/"])
def test_names_that_are_no_namespace(text):
    with pytest.raises(InvalidTopicNameError):
        NamespaceName.parse(text)


@pytest.mark.parametrize("parse", [TopicName.parse, NamespaceName.parse])
def test_a_name_that_is_too_long_is_refused_by_its_length(parse):
    with pytest.raises(InvalidTopicNameError) as refused:
        parse("a/b/" + "x" * 5_000_000)
    assert len(str(refused.value)) < 200


def test_the_longest_name_has_partitions():
    name = TopicName.parse("x" * MAX_NAME_CHARS)
    assert TopicName.parse(f"{name.local_name}-partition-2147483647").base == name
    with pytest.raises(InvalidTopicNameError):
        TopicName.parse("x" * (MAX_NAME_CHARS + 1))


@pytest.mark.parametrize("fill", ["", "0" * 900, "\u4e2d" * 500], ids=["short", "long", "wide"])
def test_names_that_are_remembered_are_bounded_in_bytes(monkeypatch, fill):
    """Names of topics that came and went took 25 MB."""
    monkeypatch.setattr(topic_name, "_KNOWN_BYTES", 1 << 20)
    monkeypatch.setattr(topic_name, "_parsed_bytes", 0)
    topic_name._parsed.clear()
    tracemalloc.start()
    most = 0
    for number in range(6_000):
        assert TopicName.parse(f"persistent://public/default/{fill}{number}").local_name == f"{fill}{number}"
        if number % 100 == 0:
            most = max(most, tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert most < 1.2 * (1 << 20)
    assert len(topic_name._parsed) > 10


def test_schemas_are_named_after_the_encoded_topic():
    for text, name in {"a b": "a+b", "\xe4": "%C3%A4", "x-partition-3": "x", "a*~": "a*%7E"}.items():
        assert TopicName.parse(f"persistent://t/n/{text}").schema_name == f"t/n/{name}"


def test_names_of_transactions_end_like_their_logs_a_partition_of_such_a_topic_does_not():
    for text in ("a__transaction_pending_ack", "x-partition-0__transaction_pending_ack", "__transaction_pending_ack"):
        name = TopicName.parse(f"persistent://t/n/{text}")
        assert name.is_of_transactions and name.is_system, text
    part = TopicName.parse("persistent://t/n/a__transaction_pending_ack-partition-0")
    assert part.is_system and not part.is_of_transactions
    assert TopicName.parse("persistent://pulsar/system/__transaction_log_-partition-3").is_of_transactions
    assert not TopicName.parse("persistent://t/n/__transaction_log_").is_of_transactions
