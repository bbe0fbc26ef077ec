"""The fault kit from a test: `broker.faults`."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FaultError", "Faults", "Namespace", "Rule", "Snapshot"]

_TIMEOUT_S: Final = 60


class FaultError(ValueError):
    """A request to the fault kit is invalid; the text names a valid request."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace for a single test: `str` gives its name, `topic` the full name of a topic in it."""

    name: str

    def __str__(self) -> str:
        return self.name

    def topic(self, name: str) -> str:
        return f"persistent://{self.name}/{name}"


class Rule:
    """A rule in force. As a context manager the rule ends with the block."""

    def __init__(self, faults: Faults, number: int, text: str) -> None:
        self._faults = faults
        self.number = number
        self._text = text

    @property
    def applied(self) -> int:
        """How often the rule was applied; 0 once the rule has ended."""
        found = self._faults.state()["rules"].get(str(self.number))
        return int(found["applied"]) if found is not None else 0

    def wait(self, timeout_s: float = 30) -> None:
        """Return once the rule was applied. Raises: TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not self.applied:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._text}: no frame matched within {timeout_s:g} s")
            time.sleep(0.01)

    def end(self) -> None:
        """Safe to call twice."""
        with contextlib.suppress(FaultError):
            self._faults.ask("DELETE", f"/faults/rules/{self.number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stored state of the broker's data, which `restore` brings back."""

    faults: Faults
    name: str

    def restore(self) -> float:
        """Restore the broker's data; returns the milliseconds taken. Every connection is cut; clients reconnect."""
        found = self.faults.ask("POST", f"/faults/snapshots/{quote(self.name)}/restore")
        return float(found["milliseconds"])

    def drop(self) -> None:
        """Remove the snapshot."""
        self.faults.ask("DELETE", f"/faults/snapshots/{quote(self.name)}")


class Faults:
    """The fault kit of one broker. All faults stay until they are used up, ended, or `reset`.

    Commands are those of the protocol (SEND, SEND_RECEIPT, MESSAGE, ACK, FLOW, PRODUCER, SUBSCRIBE, LOOKUP, PING, ...),
    errors those of its ServerError; an unknown name raises FaultError with the nearest known name. `topic` limits a
    rule to one topic and its partitions; `nth` counts the frames that match the rule, from 1; with `times=None` the
    rule applies to the nth matching frame and all later matches.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    # --- frames --------------------------------------------------------------------------------------------------

    def delay(
        self, command: str, seconds: float, *, nth: int = 1, times: int | None = None, topic: str | None = None
    ) -> Rule:
        """Delay frames of a command, and the frames behind them on the same connection."""
        return self._rule("delay", command, nth, times, topic, seconds=seconds)

    def drop(self, command: str, *, nth: int = 1, times: int | None = 1, topic: str | None = None) -> Rule:
        """Drop frames of a command: the other side never gets them."""
        return self._rule("drop", command, nth, times, topic)

    def reject(
        self,
        command: str,
        error: str,
        *,
        message: str = "rejected by the fault kit",
        nth: int = 1,
        times: int | None = 1,
        topic: str | None = None,
    ) -> Rule:
        """Answer requests with an error; the broker never gets these requests."""
        return self._rule("reject", command, nth, times, topic, error=error, message=message)

    def reject_publish(
        self, nth: int = 1, error: str = "ChecksumError", *, times: int | None = 1, topic: str | None = None
    ) -> Rule:
        """Answer the nth SEND (an entry: a message, or a batch) with an error.

        A ChecksumError reaches the program. After any other error the official clients for C++, Python and Node
        reconnect and send again, so the program sees a delay, or with `times=None` the end of its send timeout.
        """
        return self.reject("SEND", error, nth=nth, times=times, topic=topic)

    def lose_receipt(self, nth: int = 1, *, times: int | None = 1, topic: str | None = None) -> Rule:
        """Store the nth entry, and drop its receipt."""
        return self.drop("SEND_RECEIPT", nth=nth, times=times, topic=topic)

    def duplicate_delivery(self, nth: int = 1, *, times: int | None = 1, topic: str | None = None) -> Rule:
        """Give a consumer the nth entry twice."""
        return self._rule("duplicate", "MESSAGE", nth, times, topic)

    def _rule(self, action: str, command: str, nth: int, times: int | None, topic: str | None, **more: object) -> Rule:
        body = {"action": action, "command": command, "nth": nth, "times": times, "topic": topic} | more
        number = self.ask("POST", "/faults/rules", body)["id"]
        return Rule(self, number, f"{action} {command} of {topic or 'any topic'}")

    # --- connections ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hold all bytes back within the block: `pause` at its begin, `resume` at its end."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        """Hold all bytes back in both directions; connections stay open."""
        self.ask("POST", "/faults/pause")

    def resume(self) -> None:
        """End the pause and deliver the bytes that waited."""
        self.ask("POST", "/faults/resume")

    def connections(self) -> list[dict[str, Any]]:
        """The open connections: id, address, client (its version), topics (of its producers and consumers)."""
        found: list[dict[str, Any]] = self.ask("GET", "/faults/connections")
        return found

    def cut(self, connection: int | None = None, *, topic: str | None = None) -> int:
        """Cut one connection (by its id), those with clients of a topic, or all; returns how many were cut."""
        chosen = {"id": connection, "topic": topic}
        query = urlencode({key: value for key, value in chosen.items() if value is not None})
        return int(self.ask("DELETE", "/faults/connections" + (f"?{query}" if query else ""))["cut"])

    # --- disk and clock ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """The disk has no space left, until the block ends."""
        self.ask("POST", "/faults/disk", {"full": True})
        try:
            yield
        finally:
            self.ask("POST", "/faults/disk", {"full": False})

    def slow_sync(self, seconds: float) -> None:
        """Every sync of the disk, and so every receipt, takes that much longer; 0 ends it."""
        self.ask("POST", "/faults/disk", {"syncSeconds": seconds})

    def fail_sync(self) -> None:
        """The next sync of the disk fails: the broker ends with exit code 74, as it must; then call `start` again."""
        self.ask("POST", "/faults/disk", {"syncFails": True})

    def clock_ahead(self, seconds: float) -> None:
        """Set the broker's wall clock ahead: delayed messages become due, tokens and messages expire. 0 ends it."""
        self.ask("POST", "/faults/clock", {"aheadSeconds": seconds})

    # --- tests apart from each other -----------------------------------------------------------------------------

    def new_namespace(self, tenant: str = "public") -> Namespace:
        """Create a namespace with a new random name, for one test."""
        return Namespace(self.ask("POST", "/faults/namespaces", {"tenant": tenant})["namespace"])

    def snapshot(self, name: str = "snapshot") -> Snapshot:
        """Keep the present data of the broker; a snapshot of the same name is replaced. Every connection is cut."""
        self.ask("POST", f"/faults/snapshots/{quote(name, safe='')}")
        return Snapshot(self, name)

    def reset(self) -> None:
        """End all faults: rules, pause, faults of disk and clock. Snapshots stay."""
        self.ask("DELETE", "/faults")

    def state(self) -> dict[str, Any]:
        """The state of the kit: rules (with the times each was seen and applied), paused, disk, clock, snapshots."""
        found: dict[str, Any] = self.ask("GET", "/faults")
        return found

    def ask(self, method: str, path: str, body: dict[str, object] | None = None) -> Any:
        """Send a request to the kit's REST API and return the answer.

        Raises: FaultError for an invalid request, ConnectionError when the broker does not run.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - the address of the kit
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy does not reach the broker
        try:
            with direct.open(request, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            with e:
                text = e.read().decode("utf-8", "replace")
            try:
                reason = json.loads(text)["reason"]
            except (ValueError, KeyError, TypeError):
                reason = f"{e.code}: {text[:200]}"
            raise FaultError(reason) from None
        except urllib.error.URLError as e:
            reason = f"the fault kit at {self.url} does not answer ({e.reason}): `start` the broker if it has ended"
            raise ConnectionError(reason) from None
