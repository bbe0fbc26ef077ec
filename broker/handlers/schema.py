"""Schemas on the wire: GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.compat import wire_refusals
from magnetar.broker.errors import (
    AuthorizationError,
    ConnectionFatalError,
    InvalidTopicNameError,
    NotAllowedError,
)
from magnetar.broker.handlers.long_lists import write_answer
from magnetar.broker.handlers.lookup import parse_topic
from magnetar.broker.schemas.registry import NO_SCHEMA
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol import replies
from magnetar.protocol.errors import InvalidTopicNameError as BadName
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.handlers.client import Client
    from magnetar.broker.handlers.long_lists import ListedClient
    from magnetar.broker.topics.served_topic import ServedTopic

VERSION_BYTES = 8


async def on_get_schema(conn: ListedClient, command: pb.CommandGetSchema) -> None:
    """Answer a schema of a topic: the named version, or the latest when the command names none."""
    try:
        name = TopicName.parse(command.topic)
    except BadName as e:
        raise InvalidTopicNameError(str(e)) from e  # without the words of other commands, as Apache Pulsar
    conn.authorize(pb.BaseCommand.GET_SCHEMA, name)
    version: int | None = None
    if command.HasField("schema_version"):
        if not command.schema_version:
            raise wire_refusals.SCHEMA_VERSION_EMPTY.error()
        if len(command.schema_version) < VERSION_BYTES:
            raise ConnectionFatalError(f"schema version of {len(command.schema_version)} bytes")
        version = int.from_bytes(command.schema_version[:VERSION_BYTES], "big", signed=True)
    found = await conn.services.schemas.get(name, version)
    if found is None:
        raise wire_refusals.SCHEMA_UNKNOWN.error(topic=command.topic)
    shown = version.to_bytes(8, "big") if version is not None else found.version_bytes
    await write_answer(
        conn,
        len(found.data),
        lambda: replies.get_schema_response(command.request_id, found.to_proto(name.schema_name), shown),
    )


async def on_get_or_create_schema(conn: Client, command: pb.CommandGetOrCreateSchema) -> None:
    """Answer the version of a schema of an existing topic; add a new, compatible schema if the role may produce."""
    try:
        name = parse_topic(command.topic)
    except InvalidTopicNameError as e:
        raise ConnectionFatalError(str(e)) from e  # as Apache Pulsar 4.2
    news = conn.services.news
    if not conn.may(pb.BaseCommand.GET_OR_CREATE_SCHEMA, name) and (grant := news.of_anything()) is not None:
        await grant
    conn.authorize(pb.BaseCommand.GET_OR_CREATE_SCHEMA, name)
    topic = conn.services.topics.loaded.get(str(name))
    if topic is None:
        if (wait := news.of_topic(name, may_create=False)) is not None:
            await wait
        topic = await _found(conn, name)
    if command.schema.type == NO_SCHEMA:
        version = await version_without_schema(conn, topic)
    else:
        if not conn.may(pb.BaseCommand.PRODUCER, name):
            await _require_known(conn, name, command.schema)
        version = await conn.services.schemas.for_producer(topic, command.schema)
    conn.write(replies.get_or_create_schema_response(command.request_id, version))


async def _found(conn: Client, name: TopicName) -> ServedTopic:
    """The existing topic, loaded. Raises TopicNotFoundError, NotAllowedError with Apache Pulsar's class in the text."""
    topics = conn.services.topics
    try:
        topics.require_enabled(name)
        if not topics.known(name) and not topics.is_loaded_by_a_look(name):
            raise wire_refusals.TOPIC_UNKNOWN.error(topic=name)
        return await topics.get(name, create=False)
    except NotAllowedError as e:
        raise wire_refusals.NOT_ALLOWED.error(problem=e) from e


async def _require_known(conn: Client, name: TopicName, schema: pb.Schema) -> None:
    """Raise AuthorizationError unless the topic has this schema."""
    if await conn.services.schemas.find(name, schema.type, schema.schema_data) is None:
        raise AuthorizationError("Client is not authorized to add a schema")


async def version_without_schema(conn: Client, topic: ServedTopic) -> bytes:
    """The schema version of a producer or message without a schema: always empty.

    Raises IncompatibleSchemaError if the broker enforces schemas and the topic has a schema.
    """
    if topic.config.schema_validation_enforced and await conn.services.schemas.live(topic.name):
        problem = wire_refusals.SCHEMA_REQUIRED.error()
        raise wire_refusals.SCHEMA_INCOMPATIBLE.error(problem=problem)
    return b""
