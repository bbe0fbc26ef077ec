"""The faults over HTTP, for tests in any language: on 127.0.0.1 alone, and never for a web page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from magnetar.broker.policies.stored_records import ExistsError, MissingError
from magnetar.testing.rules import Rule, RuleError, did_you_mean
from magnetar.testing.snapshots import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from magnetar.testing.kit import FaultKit
    from magnetar.testing.snapshots import Snapshots

_MOST_BYTES: Final = 64 * 1024
_MOST_DIGITS: Final = 20
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost"})


class Running(Protocol):
    """The broker of this process."""

    kit: FaultKit
    snapshots: Snapshots

    async def take(self, name: str) -> None: ...

    async def restore(self, name: str) -> float:
        """Restore the snapshot; returns the milliseconds until the broker accepts clients."""
        ...


def build_control(running: Running) -> Starlette:
    """The ASGI application; see docs/fault-kit.md for its routes."""
    control = _Control(running)
    table: list[tuple[str, str, Callable[..., Awaitable[Any]]]] = [
        ("GET", "/faults", control.show),
        ("DELETE", "/faults", control.reset),
        ("POST", "/faults/rules", control.add_rule),
        ("DELETE", "/faults/rules/{number}", control.remove_rule),
        ("POST", "/faults/pause", control.pause),
        ("POST", "/faults/resume", control.resume),
        ("GET", "/faults/connections", control.connections),
        ("DELETE", "/faults/connections", control.cut),
        ("POST", "/faults/disk", control.disk),
        ("POST", "/faults/clock", control.clock),
        ("POST", "/faults/namespaces", control.new_namespace),
        ("POST", "/faults/snapshots/{name}", control.take),
        ("POST", "/faults/snapshots/{name}/restore", control.restore),
        ("DELETE", "/faults/snapshots/{name}", control.drop),
    ]
    return Starlette(routes=[Route(path, _endpoint(handler), methods=[method]) for method, path, handler in table])


def _endpoint(handler: Callable[..., Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if _host_of(request) not in _LOOPBACK or "origin" in request.headers or "sec-fetch-site" in request.headers:
            return _failed(403, "the fault kit serves programs on this machine alone")
        try:
            found = await handler(request)
        except (RuleError, SnapshotError, ExistsError) as e:
            return _failed(400, str(e))
        except MissingError as e:
            return _failed(404, str(e))
        return JSONResponse({} if found is None else found)

    return endpoint


def _host_of(request: Request) -> str | None:
    try:
        return urlsplit("//" + request.headers.get("host", "")).hostname
    except ValueError:  # half an IPv6 address
        return None


def _failed(status: int, reason: str) -> Response:
    return JSONResponse({"reason": reason}, status)


async def _body(request: Request, *names: str) -> dict[str, Any]:
    """The JSON object of a body. Raises: RuleError for a body that is no JSON object, is too large, or has a name
    outside `names` (without `names` any name is valid).
    """
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MOST_BYTES:
            raise RuleError(f"a body may have {_MOST_BYTES} bytes")
    try:
        found = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError) as e:
        raise RuleError(f"the body is no JSON: {e}") from e
    if not isinstance(found, dict):
        raise RuleError("the body must be a JSON object")
    for name in found:
        if names and name not in names:
            raise RuleError(f"there is no {name!r}{did_you_mean(name, names) or '; it is one of ' + ', '.join(names)}")
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS


def _seconds(value: object, name: str, *, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= 10**10:
        raise RuleError(f"{name} is a number of at least {least:g}")
    return float(value)


class _Control:
    def __init__(self, running: Running) -> None:
        self._running = running
        self._kit = running.kit

    async def show(self, request: Request) -> dict[str, Any]:  # noqa: ARG002 - a handler
        kit = self._kit
        return {
            "rules": {str(number): asdict(rule) for number, rule in kit.rules.items()},
            "paused": kit.switches.paused,
            "disk": {"full": kit.disk.full, "syncFails": kit.disk.sync_fails, "syncSeconds": kit.disk.sync_seconds},
            "clockAheadSeconds": kit.clock.ahead_ms / 1000,
            "snapshots": self._running.snapshots.names(),
        }

    async def reset(self, request: Request) -> None:  # noqa: ARG002 - a handler
        self._kit.reset()

    async def add_rule(self, request: Request) -> dict[str, int]:
        return {"id": self._kit.rules.add(Rule.of(await _body(request)))}

    async def remove_rule(self, request: Request) -> dict[str, Any]:
        number = request.path_params["number"]
        rule = self._kit.rules.remove(int(number)) if _is_number(number) else None
        if rule is None:
            raise MissingError("there is no such rule")
        return asdict(rule)

    async def pause(self, request: Request) -> None:  # noqa: ARG002 - a handler
        self._kit.switches.pause()

    async def resume(self, request: Request) -> None:  # noqa: ARG002 - a handler
        self._kit.switches.resume()

    async def connections(self, request: Request) -> list[dict[str, Any]]:  # noqa: ARG002 - a handler
        return self._kit.connections()

    async def cut(self, request: Request) -> dict[str, int]:
        query = request.query_params
        for name in query:
            if name not in ("id", "topic"):
                raise RuleError(f"there is no {name!r}; connections are chosen by id or topic")
        number = query.get("id")
        if number is not None and not _is_number(number):
            raise RuleError("id is a number")
        return {"cut": self._kit.cut(None if number is None else int(number), query.get("topic"))}

    async def disk(self, request: Request) -> None:
        body = await _body(request, "full", "syncFails", "syncSeconds")
        disk = self._kit.disk
        for name in ("full", "syncFails"):
            if not isinstance(body.get(name, False), bool):
                raise RuleError(f"{name} is true or false")
        seconds = _seconds(body.get("syncSeconds", disk.sync_seconds), "syncSeconds")
        disk.full = body.get("full", disk.full)
        disk.sync_fails = body.get("syncFails", disk.sync_fails)
        disk.sync_seconds = min(seconds, 60.0)

    async def clock(self, request: Request) -> None:
        body = await _body(request, "aheadSeconds")
        self._kit.set_clock(_seconds(body.get("aheadSeconds", 0), "aheadSeconds"))

    async def new_namespace(self, request: Request) -> dict[str, str]:
        body = await _body(request, "tenant")
        return {"namespace": await self._kit.new_namespace(str(body.get("tenant", "public")))}

    async def take(self, request: Request) -> None:
        await self._running.take(request.path_params["name"])

    async def restore(self, request: Request) -> dict[str, float]:
        return {"milliseconds": await self._running.restore(request.path_params["name"])}

    async def drop(self, request: Request) -> None:
        self._running.snapshots.drop(request.path_params["name"])
