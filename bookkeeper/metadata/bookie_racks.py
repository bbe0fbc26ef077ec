"""Racks and groups of bookies, as ``pulsar-admin bookies set-bookie-rack`` stores them in the node ``/bookies``. Pure.

::

    {"group": {"host:3181": {"rack": "/region/rack", "hostname": "host"}, ...}, ...}

A member or a group of another form is ignored; the other members and groups stay valid.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_RACK", "BookieRacks", "bookie_racks"]

DEFAULT_RACK = "/default-rack"
"""The rack of every bookie without a configured rack."""


@dataclass(frozen=True, slots=True)
class BookieRacks:
    """Rack of each bookie, and the members of each group."""

    racks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    malformed: tuple[str, ...] = ()
    """Names of groups that are malformed or have a malformed member; the empty name stands for the whole node."""


def bookie_racks(data: bytes) -> BookieRacks:
    """Parse the content of the node. The result leaves malformed parts out, and names them in ``malformed``."""
    try:
        stored = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return BookieRacks(malformed=("",))
    if not isinstance(stored, dict):
        return BookieRacks(malformed=("",))
    racks: dict[str, str] = {}
    groups: dict[str, frozenset[str]] = {}
    malformed = []
    for group, members in stored.items():
        known = {
            bookie: info.get("rack")
            for bookie, info in (members.items() if isinstance(members, dict) else ())
            if isinstance(info, dict) and isinstance(info.get("rack") or "", str)
        }
        if not isinstance(members, dict) or len(known) < len(members):
            malformed.append(group)
        if known:
            groups[group] = frozenset(known)
        for bookie, rack in known.items():
            name = _rack(rack or "")
            if name != DEFAULT_RACK or bookie not in racks:
                racks[bookie] = name
    return BookieRacks(racks, groups, tuple(malformed))


def _rack(name: str) -> str:
    """Return the rack as a path; `name` may lack the leading slash, and an empty name is the default rack."""
    stripped = name.strip().strip("/")
    return f"/{stripped}" if stripped else DEFAULT_RACK
