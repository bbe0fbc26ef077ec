"""Rules: faults of frames between clients and broker. Pure.

A rule matches frames of one command, of one topic or all topics. The rule applies to the nth matching frame and the
`times - 1` matches behind it, or to all from the nth on. The first rule that applies to a frame decides; every matching
rule counts the frame.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from magnetar.broker.handlers.table import FROM_BROKER, HANDLERS
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ACTIONS: Final = ("delay", "drop", "reject", "duplicate")
_SEND: Final = pb.BaseCommand.SEND
COMMANDS: Final = {
    name: value for name, value in pb.BaseCommand.Type.items() if value in {*HANDLERS, *FROM_BROKER, _SEND}
}
ERRORS: Final = dict(pb.ServerError.items())
MOST_RULES: Final = 1000
MOST_SECONDS: Final = 3600.0


class RuleError(ValueError):
    """A rule is invalid; the text names valid values."""


@dataclass(slots=True)
class Rule:
    """A rule (see the module). seconds: the length of a delay; error, message: the answer to a rejected request."""

    action: str
    command: str
    nth: int = 1
    times: int | None = 1
    topic: str | None = None
    seconds: float = 0.0
    error: str = "UnknownError"
    message: str = "rejected by the fault kit"
    seen: int = field(default=0)
    applied: int = field(default=0)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Rule:
        """The rule with these values. Raises RuleError for an unknown name, a missing name or an invalid value."""
        names = [each.name for each in fields(cls) if each.name not in ("seen", "applied")]
        for name in values:
            if name not in names:
                raise RuleError(f"a rule has no {name!r}{did_you_mean(name, names)}")
        for name in ("action", "command"):
            if name not in values:
                raise RuleError(f"a rule needs {name!r}")
        rule = cls(**values)
        rule._check()
        return rule

    def _check(self) -> None:
        for name, value in (("message", self.message), ("topic", self.topic or "")):
            if not isinstance(value, str):
                raise RuleError(f"{name} is a text")
        _one_of("action", self.action, ACTIONS)
        _one_of("command", self.command, COMMANDS)
        _one_of("error", self.error, ERRORS)
        if not isinstance(self.nth, int) or self.nth < 1:
            raise RuleError("nth counts from 1")
        if self.times is not None and (not isinstance(self.times, int) or self.times < 1):
            raise RuleError("times is at least 1, or None for all that follow")
        if not isinstance(self.seconds, (int, float)) or not 0 <= self.seconds <= MOST_SECONDS:
            raise RuleError(f"seconds is a number from 0 to {MOST_SECONDS:g}")
        if self.action == "delay" and not self.seconds:
            raise RuleError("a delay needs seconds")
        if self.action == "reject" and not self.may_be_rejected:
            raise RuleError(f"{self.command} cannot be rejected: it has no answer")
        if self.topic is not None:
            self.topic = full_name(self.topic)

    @property
    def may_be_rejected(self) -> bool:
        """Whether the protocol has an error answer to the command."""
        number = COMMANDS[self.command]
        return number == _SEND or (number in HANDLERS and HANDLERS[number].fail is not None)

    def applies(self, command: int, topic: str | None) -> bool:
        """Count a frame if it matches; returns whether the rule applies to it."""
        if COMMANDS[self.command] != command or (self.topic is not None and self.topic != topic):
            return False
        self.seen += 1
        if self.seen < self.nth or (self.times is not None and self.seen >= self.nth + self.times):
            return False
        self.applied += 1
        return True


def full_name(topic: str) -> str:
    """The full name of a topic; for a partition the name of its partitioned topic. Raises RuleError."""
    try:
        return str(TopicName.parse(topic).base)
    except InvalidTopicNameError as e:
        raise RuleError(str(e)) from e


def did_you_mean(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name.lower(), plain := {each.lower(): each for each in names}, n=1)
    return f"; did you mean {plain[found[0]]!r}?" if found else ""


def _one_of(what: str, value: object, names: Iterable[str]) -> None:
    names = list(names)
    if value not in names:
        shown = did_you_mean(str(value), names) or f"; it is one of {', '.join(names)}"
        raise RuleError(f"there is no {what} {str(value)[:50]!r}{shown}")


class Rules:
    """The rules in force, by number."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._rules)

    def add(self, rule: Rule) -> int:
        """Add a rule; returns its number. Raises RuleError when there are MOST_RULES already."""
        if len(self._rules) >= MOST_RULES:
            raise RuleError(f"there are {MOST_RULES} rules: clear them")
        self._last += 1
        self._rules[self._last] = rule
        return self._last

    def remove(self, number: int) -> Rule | None:
        """Remove a rule and return it; None for an unknown number."""
        return self._rules.pop(number, None)

    def clear(self) -> None:
        self._rules.clear()

    def items(self) -> list[tuple[int, Rule]]:
        return list(self._rules.items())

    def decide(self, command: int, topic: str | None) -> Rule | None:
        """The rule that applies to this frame; None without such a rule."""
        decided = None
        for rule in self._rules.values():
            if rule.applies(command, topic) and decided is None:
                decided = rule
        return decided
