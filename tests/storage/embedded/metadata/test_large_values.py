"""The bound of large values."""

from __future__ import annotations

import pytest

from magnetar.storage.embedded.metadata.large_values import SMALL_BYTES, LargeValues, owner_of

MOST = 100_000
LARGE = SMALL_BYTES + 1_000


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/managed-ledgers/t/n/persistent/topic/cursor", "t"),
        ("/schemas/t/n/topic", "t"),
        ("/admin/policies/t", "t"),
        ("/admin/policies/t/n", "t"),
        ("/admin/topic-policies/t/n/persistent/topic", "t"),
        ("/admin/partitioned-topics/t/n/persistent/topic", "t"),
        ("/admin/clusters/t", ""),
        ("/ledgers/5", ""),
    ],
)
def test_the_tenant_owns_its_nodes(path: str, owner: str):
    assert owner_of(path) == owner


def fill(values: LargeValues, tenant: str) -> int:
    """Add nodes until the bound; return their number."""
    number = 0
    while number < 1000 and values.has_room(f"/schemas/{tenant}/n/{number}", LARGE):
        values.changed(f"/schemas/{tenant}/n/{number}", 0, LARGE)
        number += 1
    return number


def test_a_tenant_that_fills_the_memory_takes_no_share_of_another():
    values = LargeValues(MOST)
    assert 95 <= fill(values, "attacker") <= 100
    assert 45 <= fill(values, "victim") <= 50
    assert 30 <= fill(values, "late") <= 33
    assert not fill(values, "attacker")
    assert values.has_room("/schemas/attacker/n/small", SMALL_BYTES), "values of a usual size are free"
    for number in range(100):
        values.changed(f"/schemas/attacker/n/{number}", LARGE, 0 if number % 2 else SMALL_BYTES)
    assert fill(values, "victim")


def test_nodes_that_are_gone_count_no_more():
    values = LargeValues(MOST)
    values.count_all({f"/schemas/t{number}/n/topic": (bytes(LARGE + number), 0) for number in range(10)})
    assert values.total_bytes == 10 * 1000 + 45
    for number in range(10):
        values.changed(f"/schemas/t{number}/n/topic", LARGE + number, 0)
    assert not values.total_bytes and not values._by_owner
