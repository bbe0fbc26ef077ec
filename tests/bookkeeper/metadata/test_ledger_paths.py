from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.bookkeeper.errors import MetadataRequestError
from magnetar.bookkeeper.metadata.ledger_paths import Layout, ledger_id_of, ledger_path, parse_layout


@pytest.mark.parametrize(
    ("layout", "ledger_id", "path"),
    [
        (Layout.HIERARCHICAL, 1, "00/0000/L0001"),
        (Layout.HIERARCHICAL, 2147483646, "21/4748/L3646"),
        (Layout.HIERARCHICAL, 2147483647, "000/0000/0021/4748/L3647"),
        (Layout.LONG_HIERARCHICAL, 1, "000/0000/0000/0000/L0001"),
        (Layout.FLAT, 12, "L0000000012"),
    ],
)
def test_paths_as_bookkeeper_writes_them(layout, ledger_id, path):
    assert ledger_path(layout, ledger_id) == path


@given(st.sampled_from([Layout.HIERARCHICAL, Layout.LONG_HIERARCHICAL]), st.integers(0, (1 << 62) - 1))
def test_a_path_tells_its_ledger(layout, ledger_id):
    assert ledger_id_of(ledger_path(layout, ledger_id)) == ledger_id


@pytest.mark.parametrize("path", ["LAYOUT", "idgen/ID-1", "00/0000/L01", "00/L0001", "L0001", "0/0000/L0001", ""])
def test_other_nodes_are_no_ledgers(path):
    assert ledger_id_of(path) is None


def test_the_layout_node():
    stored = b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert parse_layout("/ledgers/LAYOUT", stored) is Layout.HIERARCHICAL
    for broken in (b"", b"3\n" + stored[2:], b"2\norg.example.Other:1", b"\xff"):
        with pytest.raises(MetadataRequestError):
            parse_layout("/ledgers/LAYOUT", broken)
