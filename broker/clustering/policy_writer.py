"""Writes events of topic policies, as a client of the broker that serves their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.clustering.policy_events import EVENT_PROPERTIES, encode_event, event_key, event_schema
from magnetar.broker.errors import ServiceNotReadyError
from magnetar.broker.schemas.avro_values import AvroValueError
from magnetar.client.errors import ClientError
from magnetar.client.sending import Outgoing, TopicSender
from magnetar.protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.broker.clustering.peer_client import PeerClient
    from magnetar.broker.clustering.policy_events import EventPolicies
    from magnetar.protocol.topic_name import TopicName

__all__ = ["write_events"]


async def write_events(
    peers: PeerClient, events: TopicName, topic: TopicName, changed: Sequence[tuple[bool, EventPolicies]], cluster: str
) -> None:
    """Store the changes of the policies of `topic` in the topic `events`, which is created when it does not exist.

    Durable on return. Raises ServiceNotReadyError; some of the events may be stored then.
    """
    if not changed:
        return
    schema = pb.Schema(name="PulsarEvent", schema_data=event_schema(), type=pb.Schema.Avro)
    for key, value in EVENT_PROPERTIES.items():
        schema.properties.add(key=key, value=value)
    try:
        async with TopicSender(peers.service, peers.credentials, str(events), schema=schema) as sender:
            for everywhere, policies in changed:
                payload = b"" if policies.is_empty else encode_event(topic, policies, cluster)
                key = event_key(topic, all_clusters=everywhere)
                await (await sender.send(Outgoing(payload, key, null_value=policies.is_empty)))
    except (ClientError, AvroValueError) as error:
        raise ServiceNotReadyError(f"Policies of {topic} cannot be stored: {error}") from error
