"""Nodes, and the first entry of each ledger, that an Apache Pulsar 4.2.4 cluster wrote.

Recorded with ``tests/cluster/record_layout.py``.
"""

from __future__ import annotations

import json
import pathlib

_FILE = json.loads(pathlib.Path(__file__).with_name("pulsar-4.2.4.json").read_text())
STAGES = ("initialized", "subscribed", "serving", "unloaded")
"""After the cluster was made; after the first subscriptions; while messages were acknowledged; after the unload."""


def node(stage: str, path: str) -> bytes:
    return bytes.fromhex(_FILE[stage][path][0])


def nodes(prefix: str) -> dict[str, list[bytes]]:
    """Every value of every stage of the nodes below ``prefix``, by path."""
    found: dict[str, list[bytes]] = {}
    for stage in STAGES:
        for path in _FILE[stage]:
            if path.startswith(prefix):
                values = found.setdefault(path, [])
                if node(stage, path) not in values:
                    values.append(node(stage, path))
    return found


def entries(ledger_id: int) -> list[bytes]:
    return [bytes.fromhex(entry) for entry in _FILE["entries"][str(ledger_id)]]
