"""The indexes of the loaded topics."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.topics.loaded_topics import LoadedTopics
from magnetar.protocol.topic_name import TopicName

NAMES = [
    f"{domain}://t/{namespace}/{local}"
    for domain in ("persistent", "non-persistent")
    for namespace in ("n", "nn")
    for local in ("a", "a-partition-0", "a-partition-1", "a-partition-1x", "a-partition-01", "ab-partition-0", "b")
]


def named(name):
    return SimpleNamespace(name=TopicName.parse(name))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(NAMES)), max_size=60))
def test_the_indexes_equal_a_search_through_all_topics(steps):
    loaded, expected = LoadedTopics(), {}
    for is_load, name in steps:
        expected.pop(name, None)
        if is_load:
            loaded[name] = expected[name] = named(name)
        else:
            loaded.pop(name, None)
    assert list(loaded.items()) == list(expected.items()) and list(loaded.values()) == list(expected.values())
    for namespace in ("t/n", "t/nn", "t/other"):
        assert loaded.of_namespace(namespace) == [x for x in expected.values() if x.name.namespace == namespace]
    for base in {str(TopicName.parse(name).base) for name in NAMES}:
        found = [x for x in expected.values() if str(x.name.base) == base]
        assert sorted(map(id, loaded.of_base(base))) == sorted(map(id, found))
    for name in list(loaded):
        del loaded[name]
    assert not loaded._of_namespace and not loaded._partitions


def test_the_end_of_all_topics_empties_the_indexes():
    loaded = LoadedTopics()
    for name in NAMES:
        loaded[name] = named(name)
    loaded.clear()
    assert not len(loaded) and not loaded.of_namespace("t/n") and not loaded.of_base(NAMES[0])
