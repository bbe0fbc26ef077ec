"""The directory of topics for the admin API."""

from __future__ import annotations

from magnetar.broker.admin_backend.topic_directory import AdminTopics
from magnetar.broker.broker import Broker
from magnetar.broker.settings import Settings
from magnetar.protocol.topic_name import TopicName

KEPT, DELETED = (TopicName.parse(f"persistent://public/default/{name}") for name in ("kept", "deleted"))


async def test_a_deleted_topic_leaves_no_offload_request(tmp_path):
    """A role that created, offloaded and deleted topics without end filled the memory with their names."""
    broker = Broker(Settings(data_dir=str(tmp_path / "data"), broker_service_port=None, web_service_port=None))
    await broker.start()
    directory = AdminTopics(broker.topics)
    for name in (KEPT, DELETED):
        await broker.lifecycle.create(name, {})
        directory.offloads_asked.add(name)
    await broker.lifecycle.delete(DELETED)
    assert directory.offloads_asked == {KEPT}
    await broker.stop()
