"""The catalog of an Iceberg table: its database is open as long as the table is used."""

import gc

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from magnetar.pipeline.lake.committer import open_table
from tests.pipeline.lake.lake_rows import SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:pyiceberg")


def test_a_table_that_is_gone_has_closed_its_catalog(tmp_path, monkeypatch):
    """From Python 3.13 on a database that its end alone closes is a ResourceWarning."""
    closed = []

    class Noted(SqlCatalog):
        def close(self):
            super().close()
            closed.append(self.engine.pool.checkedin())

    monkeypatch.setattr("pyiceberg.catalog.sql.SqlCatalog", Noted)
    table = open_table("iceberg", str(tmp_path / "t"))
    table.prepare(SCHEMA)
    gc.collect()
    assert not closed
    del table
    gc.collect()
    assert closed == [0]
