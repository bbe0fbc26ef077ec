"""Answers of the admin API: JSON, nothing (204), an unset value (200, empty), and errors as {"reason": ...}."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from magnetar.broker import errors
from magnetar.broker.errors import RestError
from magnetar.broker.policies.stored_records import ExistsError, MissingError
from magnetar.broker.slices import sliced
from magnetar.broker.topics.lifecycle import ConflictError
from magnetar.storage.errors import StorageClosedError, StorageError

JSON: Final = "application/json"
_NAMES: Final = 2048

STATUS_OF: Final[dict[type[Exception], int]] = {
    errors.TopicNotFoundError: 404,
    errors.SubscriptionNotFoundError: 404,
    errors.ConsumerNotFoundError: 404,
    errors.ConsumerBusyError: 412,
    errors.ProducerBusyError: 412,
    errors.MetadataError: 412,
    errors.UnreadableRecordError: 500,
    errors.InvalidTopicNameError: 412,
    errors.NotAllowedError: 405,
    errors.IncompatibleSchemaError: 409,
    errors.SchemaDefaultError: 500,
    errors.TopicTerminatedError: 412,
    errors.TooManyRequestsError: 429,
    errors.ServiceNotReadyError: 503,
    errors.AuthorizationError: 401,
    ConflictError: 409,
    ExistsError: 409,
    MissingError: 404,
    StorageClosedError: 503,
    StorageError: 500,
}


def not_found(reason: str) -> RestError:
    return RestError(404, reason)


def conflict(reason: str) -> RestError:
    return RestError(409, reason)


def precondition(reason: str) -> RestError:
    return RestError(412, reason)


def error_response(error: Exception) -> Response | None:
    """The answer to an expected error; None for a bug."""
    if isinstance(error, RestError):
        return failure(error.status, error.reason)
    for kind in type(error).__mro__:
        status = STATUS_OF.get(kind)
        if status is not None:
            return failure(status, str(error))
    return None


def failure(status: int, reason: str) -> Response:
    try:
        content = msgspec.json.encode({"reason": reason})
    except UnicodeEncodeError:  # half of a surrogate pair, in the role of a token: as an escape
        content = json.dumps({"reason": reason}, separators=(",", ":")).encode()
    return Response(content, status_code=status, media_type=JSON)


def json_response(value: object, status: int = 200) -> Response:
    """The value as JSON; None is an empty body: a policy that is not set."""
    if value is None:
        return Response(status_code=status)
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


def pieces_of(value: Any) -> Iterator[bytes]:
    """Yield the JSON of statistics in pieces: each row of a list, and the members of an object between its lists and
    objects.
    """
    if isinstance(value, dict):
        before, plain = b"{", {}
        for key, inner in value.items():
            if not (inner and isinstance(inner, dict | list)):
                plain[key] = inner
                continue
            if plain:
                yield before + msgspec.json.encode(plain)[1:-1]
                before, plain = b",", {}
            yield before + msgspec.json.encode(key) + b":"
            yield from pieces_of(inner)
            before = b","
        if plain:
            yield before + msgspec.json.encode(plain)[1:-1]
        yield b"}" if plain or before == b"," else b"{}"
    elif isinstance(value, list) and value:
        before = b"["
        for row in value:
            yield before + msgspec.json.encode(row)
            before = b","
        yield b"]"
    else:
        yield msgspec.json.encode(value)


async def list_response(names: Sequence[str]) -> Response:
    """The names as a JSON array, encoded in slices with turns of the loop between them: lists may be long."""
    parts = [msgspec.json.encode(part)[1:-1] async for part in sliced(names, _NAMES)]
    return Response(b"[" + b",".join(parts) + b"]", media_type=JSON)


def done(status: int = 204) -> Response:
    return Response(status_code=status)


def text(value: str, status: int = 200) -> Response:
    """The text itself, under the type that Apache Pulsar gives it."""
    return Response(value, status_code=status, media_type=JSON)
