"""Isolation policies (NamespaceIsolationData): their checks, stored form, and the namespaces that a change unloads."""

import contextlib
import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import re2

from magnetar.broker.compat import java_numbers, rest_refusals
from magnetar.broker.topics.patterns import InvalidPatternError, TopicPattern, compiled

_SCOPES: Final = ("all_matching", "none", "changed")


class FailoverPolicy(enum.Enum):
    """The policy that decides when secondary brokers serve the namespaces; Apache Pulsar has a single kind."""

    MIN_AVAILABLE = "min_available"


class AutoFailover(msgspec.Struct):
    """Parameters are texts; a number comes as a text too."""

    parameters: dict[str, str | int]
    policy_type: FailoverPolicy


class IsolationPolicy(msgspec.Struct):
    """An isolation policy, whose patterns are regular expressions."""

    namespaces: list[str | int]
    primary: list[str | int]
    secondary: list[str | int]
    auto_failover_policy: AutoFailover
    unload_scope: str | None = None


def checked(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """The policy as the broker stores and shows it; raises 400. Drops unknown members and an unknown scope."""
    try:
        policy = msgspec.convert(body, IsolationPolicy)
        namespaces, primary, secondary = map(_patterns, (policy.namespaces, policy.primary, policy.secondary))
        parameters = _parameters(policy.auto_failover_policy)
    except (msgspec.ValidationError, ValueError) as e:
        raise rest_refusals.ISOLATION_POLICY_MALFORMED.error(name=name, problem=e) from e
    failover = {"parameters": parameters, "policy_type": policy.auto_failover_policy.policy_type.value}
    kept = {"namespaces": namespaces, "primary": primary, "secondary": secondary, "auto_failover_policy": failover}
    return kept | ({"unload_scope": policy.unload_scope} if policy.unload_scope in _SCOPES else {})


def unloaded(policy: Mapping[str, Any], former: Mapping[str, Any] | None) -> list[Any]:
    """Compiled patterns of the namespaces that a policy unloads when it replaces the former one.

    Without a scope these are the patterns that one of the two policies has alone. With the scope `all_matching`, or
    behind a change of the primary brokers, they are the patterns of both.
    """
    scope = policy.get("unload_scope")
    if scope == "none":
        return []
    new, old = _texts(policy, "namespaces"), _texts(former or {}, "namespaces")
    moves = former is not None and sorted(_texts(former, "primary")) != sorted(_texts(policy, "primary"))
    chosen = new | old if scope == "all_matching" or moves else new ^ old
    patterns = []
    for text in sorted(chosen):
        with contextlib.suppress(re2.error):  # as in the choice of brokers, such a pattern matches no name
            patterns.append(compiled(text))
    return patterns


def _texts(policy: Mapping[str, Any], field: str) -> set[str]:
    found = policy.get(field)
    return {each for each in found if isinstance(each, str)} if isinstance(found, list) else set()


def _patterns(given: list[str | int]) -> list[str]:
    texts = [str(each) for each in given]
    for text in texts:
        try:
            TopicPattern(text)
        except InvalidPatternError as e:
            raise ValueError(str(e)) from e
    return texts


def _parameters(failover: AutoFailover) -> dict[str, str]:
    """Check the least number of primary brokers, and their highest load: numbers of 32 bits."""
    texts = {key: str(value) for key, value in failover.parameters.items()}
    for key in ("min_limit", "usage_threshold"):
        try:
            java_numbers.parsed(texts.get(key, ""), 32)
        except ValueError:
            raise ValueError(f"{key} is no number") from None
    return texts
