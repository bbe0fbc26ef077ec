"""Schemas of topics: /admin/v2/schemas/{tenant}/{namespace}/{topic}."""

from http import HTTPStatus
from typing import Final

import msgspec
from starlette.responses import Response

from magnetar.broker.admin.call import Call, topic_of
from magnetar.broker.admin.responses import json_response
from magnetar.broker.admin.routes import ADMIN, RouteTable
from magnetar.broker.admin.schema_texts import name_of, shown_definition, stored_definition, type_named
from magnetar.broker.auth.table import TOPIC_ADMIN, TOPIC_PRODUCE, TOPIC_USE
from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.errors import IncompatibleSchemaError, InvalidSchemaError, RestError
from magnetar.broker.schemas.compatibility import Definition, Strategy
from magnetar.broker.schemas.schema_store import StoredSchema
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
MOST_SCHEMA_BODY_BYTES: Final = 2 * 1024 * 1024
SCHEMAS = ADMIN + "/schemas/{tenant}/{namespace}/{topic}"


class SchemaBody(msgspec.Struct):
    """PostSchemaPayload: `schema` is the definition as a text."""

    type: str | None = None
    schema: str | None = None
    properties: dict[str, str] | None = None


@routes.get(SCHEMAS + "/schema", TOPIC_USE)
async def get_latest(call: Call) -> Response:
    return _schema_response(await call.api.schemas.get(_any_name(call)))


@routes.get(SCHEMAS + "/schema/{version}", TOPIC_USE)
async def get_version(call: Call) -> Response:
    name = _any_name(call)
    try:
        version = call.number("version")
    except RestError:
        raise RestError(500, "a version is a number") from None  # as Apache Pulsar has it
    return _schema_response(await call.api.schemas.get(name, version))


@routes.get(SCHEMAS + "/schemas", TOPIC_USE)
async def get_all(call: Call) -> Response:
    live = await call.api.schemas.live(_any_name(call))
    return json_response({"getSchemaResponses": [_shown(each) for each in live]})


@routes.get(SCHEMAS + "/metadata", TOPIC_USE)
async def get_metadata(call: Call) -> Response:
    """Show each version, deletions included, in the form of Apache Pulsar's places in ledgers; here `ledgerId` is the
    version.
    """
    history = await call.api.schemas.history(_any_name(call))
    if not history:
        return json_response(None)
    index = [{"version": each.version, "entryId": 0, "ledgerId": each.version} for each in history]
    return json_response({"info": index[-1], "index": index})


@routes.post(SCHEMAS + "/schema", TOPIC_PRODUCE, most_body=MOST_SCHEMA_BODY_BYTES)
async def add(call: Call) -> Response:
    """Add a schema; a schema that the topic has keeps its version. 409 for an incompatible schema, 422 for an invalid
    schema.
    """
    given = await _given(call)
    name, body = _name(call), _required(given)
    try:
        stored = await call.api.schemas.put(
            name, _type_of(body), _definition_of(body), body.properties or {}, _strategy(call, name)
        )
    except InvalidSchemaError as e:
        raise RestError(422, str(e)) from e
    except IncompatibleSchemaError as e:
        raise RestError(409, str(e)) from e
    return json_response({"version": {"version": stored.version}})


@routes.delete(SCHEMAS + "/schema", TOPIC_ADMIN)
async def delete(call: Call) -> Response:
    """Delete the schema: the deletion is a version of its own. ?force=true forgets all versions and answers -1."""
    force, name = call.flag("force"), _any_name(call)
    _require_tenant(call, name)
    version = await call.api.schemas.delete(name, force=force)
    return json_response({"version": -1 if force else 0 if version is None else version})


@routes.post(SCHEMAS + "/version", TOPIC_USE, most_body=MOST_SCHEMA_BODY_BYTES)
async def version_of(call: Call) -> Response:
    """Answer the version of the text of the body; -1 when the topic lacks the text, though not its meaning."""
    given = await _given(call)
    name, body = _any_name(call), _required(given)
    if _is_of_clients(body):
        return json_response({"version": -1})
    found = await call.api.schemas.find_text(name, _type_of(body), _definition_of(body))
    return json_response({"version": -1 if found is None else found.version})


@routes.post(SCHEMAS + "/compatibility", TOPIC_ADMIN, most_body=MOST_SCHEMA_BODY_BYTES)
async def compatibility(call: Call) -> Response:
    given = await _given(call)
    _require_tenant(call, _any_name(call))
    name, body = _name(call), _required(given)
    strategy = _strategy(call, name)
    if _is_of_clients(body):
        raise RestError(500, _client_side(body))
    try:
        new = Definition(_type_of(body), _definition_of(body), body.properties or {})
        await call.api.schemas.check_compatible(name, new, strategy)
    except (InvalidSchemaError, IncompatibleSchemaError) as e:
        raise RestError(500, str(e)) from e
    return json_response({"schemaCompatibilityStrategy": strategy.value, "compatibility": True}, 202)


def _name(call: Call) -> TopicName:
    """The topic name of the path. The namespace must exist; the topic need not."""
    try:
        return call.topic()
    except RestError as e:
        raise rest_refusals.NAMESPACE_MISSING.error() if e.status == HTTPStatus.NOT_FOUND else e from None


def _any_name(call: Call) -> TopicName:
    """The topic name of the path, also in a missing namespace, where no topic has schemas."""
    return topic_of(call.request.path_params) or call.topic()


def _require_tenant(call: Call, name: TopicName) -> None:
    if name.tenant not in call.namespaces.tenants:
        raise rest_refusals.TENANT_MISSING.error()


def _strategy(call: Call, name: TopicName) -> Strategy:
    return Strategy(call.namespaces.effective(name).schema_compatibility_strategy)


async def _given(call: Call) -> SchemaBody | None:
    """The body, whose form counts before the names of the path. Raises 400, 413, 415."""
    return await call.body(SchemaBody)


def _required(body: SchemaBody | None) -> SchemaBody:
    if body is None or body.schema is None:
        raise RestError(500, "a schema is required")
    return body


def _is_of_clients(body: SchemaBody) -> bool:
    """Whether the type is for clients alone: no topic has a schema of this type."""
    return body.type in ("AUTO", "AUTO_CONSUME", "AUTO_PUBLISH")


def _client_side(body: SchemaBody) -> str:
    return wire_refusals.SCHEMA_OF_CLIENTS.text.format(kind=body.type)


def _type_of(body: SchemaBody) -> int:
    if body.type == "BYTES":  # the same as no schema
        return pb.Schema.Type.Value("None")
    if _is_of_clients(body):
        raise RestError(422, _client_side(body))
    found = None if body.type is None else type_named(body.type)
    if found is None:
        raise RestError(500, f"there is no schema type {body.type}")
    return found


def _definition_of(body: SchemaBody) -> bytes:
    try:
        return stored_definition(_type_of(body), body.schema or "")
    except ValueError as e:
        raise RestError(500, str(e)) from e  # as Apache Pulsar has it


def _schema_response(schema: StoredSchema | None) -> Response:
    if schema is None or schema.deleted:
        raise rest_refusals.SCHEMA_UNKNOWN.error()
    return json_response(_shown(schema))


def _shown(schema: StoredSchema) -> dict[str, object]:
    return {
        "version": schema.version,
        "type": name_of(schema.type),
        "timestamp": schema.timestamp_ms,
        "data": shown_definition(schema.type, schema.data, schema.properties),
        "properties": schema.properties,
    }
