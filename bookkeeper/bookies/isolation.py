"""The groups of bookies that may hold a ledger, and their form in the ledger's custom metadata. Pure.

Apache Pulsar's rules (``IsolatedBookieEnsemblePlacementPolicy``): bookies of other groups are excluded, bookies without
a group are not; the secondary groups are taken as well when the primary groups have fewer bookies than the ensemble. A
ledger of a namespace with groups carries the groups in its custom metadata, for every later replacement of its bookies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = ["POLICY_KEY", "IsolationGroups", "allowed_bookies", "groups_of_ledger", "isolation_groups", "policy_of"]

POLICY_KEY = "EnsemblePlacementPolicyConfig"
"""The key of the groups in a ledger's custom metadata."""
_CLASS = "org.apache.pulsar.bookie.rackawareness.IsolatedBookieEnsemblePlacementPolicy"
_PRIMARY, _SECONDARY = "isolationBookieGroups", "secondaryIsolationBookieGroups"


@dataclass(frozen=True, slots=True)
class IsolationGroups:
    """Names of groups. Without names, an ensemble has only bookies that belong to no group."""

    primary: frozenset[str] = frozenset()
    secondary: frozenset[str] = frozenset()


def isolation_groups(primary: str | None, secondary: str | None) -> IsolationGroups:
    """Parse comma-separated names of groups."""
    return IsolationGroups(_names(primary), _names(secondary))


def allowed_bookies(
    candidates: Iterable[str], isolation: IsolationGroups | None, groups: Mapping[str, frozenset[str]], size: int
) -> list[str]:
    """Return the candidates that the isolation groups allow for an ensemble of `size` bookies."""
    present = list(candidates)
    if isolation is None:
        return present
    primary = _members(isolation.primary, groups)
    excluded = _members(groups.keys() - isolation.primary, groups) - primary
    if len(primary.intersection(present)) < size:
        excluded -= _members(isolation.secondary, groups)
    return [bookie for bookie in present if bookie not in excluded]


def policy_of(isolation: IsolationGroups) -> bytes:
    """The value of ``POLICY_KEY`` as Apache Pulsar writes it."""
    properties = {_PRIMARY: ",".join(sorted(isolation.primary)), _SECONDARY: ",".join(sorted(isolation.secondary))}
    return json.dumps({"policyClass": _CLASS, "properties": properties}, separators=(",", ":")).encode()


def groups_of_ledger(custom: Mapping[str, bytes], otherwise: IsolationGroups | None) -> IsolationGroups | None:
    """Return the groups in the ledger's custom metadata; `otherwise` when the metadata have no readable groups."""
    stored = custom.get(POLICY_KEY)
    if stored is None:
        return otherwise
    try:
        found = json.loads(stored)
        properties = found["properties"]
        if found["policyClass"] != _CLASS:
            return otherwise
        return isolation_groups(properties.get(_PRIMARY), properties.get(_SECONDARY))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return otherwise


def _names(text: str | None) -> frozenset[str]:
    return frozenset(name.strip() for name in (text or "").split(",") if name.strip())


def _members(names: Collection[str], groups: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(groups.get(name, frozenset()) for name in names))
