"""The paths in docs/architecture.md are those that a broker takes, and one message costs no more calls than it says."""

from __future__ import annotations

import re

import pytest

from magnetar.protocol import _pure, speed
from tests.model.call_chains import ROOT, chains

PAGE = (ROOT / "docs" / "architecture.md").read_text()
BESIDE = re.compile(
    r"broker/(meters/\w+|limits|consumers/(permits|pending_acks)|topics/deduplication\w*|dispatchers/[a-z_]+|handlers/\w+)"
)
"""Modules of the broker on the path that no picture shows: counters, books, and the parts of a dispatcher."""


@pytest.fixture(scope="module")
def traced():
    return chains()


def picture(name):
    block = re.search(rf"^```{name}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None, f"no picture of {name}"
    return [line.split()[0] for line in block.group(1).splitlines()]


@pytest.mark.parametrize("name", ["SEND", "MESSAGE", "ACK"])
def test_the_picture_shows_the_way(traced, name):
    shown, chain = picture(name.lower()), traced[name]
    called = iter(module for module, _ in chain.calls)
    for module in shown:
        assert module in called, f"{module} is not called, or not behind those above it"
    hidden = [m for m in chain.modules if m.startswith("broker/") and m not in shown and not BESIDE.fullmatch(m)]
    assert not hidden, f"on the way, and not in the picture: {hidden}"


@pytest.mark.skipif(speed.cut is _pure.cut, reason="the compiled helper makes fewer calls")
@pytest.mark.parametrize("name", ["SEND", "MESSAGE", "ACK"])
def test_a_message_costs_no_more_calls_than_documented(traced, name):
    row = re.search(rf"^\| {name} \|(.*)\|$", PAGE, re.MULTILINE)
    calls, in_broker, files, objects = map(int, row.group(1).split("|"))
    chain = traced[name]
    found = (len(chain.calls), len(chain.in_broker), len(chain.modules), len(chain.objects))
    assert all(a <= b for a, b in zip(found, (calls, in_broker, files, objects), strict=True)), found
