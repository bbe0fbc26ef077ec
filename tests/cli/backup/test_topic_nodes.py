"""The paths are those under which the broker keeps its records."""

import pytest

from magnetar.broker.policies.namespaces import _topic_path
from magnetar.broker.schemas.registry import _path
from magnetar.broker.topics.catalog import partitioned_path
from magnetar.cli.backup.topic_nodes import leading_nodes, schema_nodes
from magnetar.protocol.topic_name import TopicName


@pytest.mark.parametrize("topic", ["persistent://t/n/orders", "persistent://t/n/a b%ü:c-partition-3"])
def test_paths_are_the_brokers(topic):
    name = TopicName.parse(topic)
    base = name.base
    assert schema_nodes(name.persistence_name) == [_path(name)]
    assert leading_nodes(name.persistence_name) == [
        "/admin/policies/t",
        "/admin/policies/t/n",
        partitioned_path(base),
        _topic_path(str(base)),
    ]


def test_another_managed_ledger_has_none():
    assert [*schema_nodes("x"), *leading_nodes("x")] == []
