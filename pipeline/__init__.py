"""Topics as tables for PySpark: sources, sinks and jobs over the log.

    import magnetar.pipeline                      # format("pulsar") in the active session
    orders = spark.read.format("pulsar").option("topic", "orders").load()

`register(spark)` does the same for a session made later. The broker never imports this room, and it needs the extra
`magnetar[spark]` and, on the machine, Java 17. Everything below `source`, `sink` and `jobs` runs without Spark: bytes
in, Arrow record batches out.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import SparkSession

__all__ = ["dataset", "register"]


def register(spark: SparkSession | None = None) -> None:
    """Make ``format("pulsar")`` known to a session (default: the active session), and let it push filters down.

    May be repeated. Raises MissingError when PySpark or Java is missing; the text names the package to install.
    """
    # Imported here, because every module of the room imports this package first.
    importlib.import_module("magnetar.pipeline.registration").register(spark)


def dataset(table: str) -> Dataset:
    """Return the newest version of an exported Parquet table, for pandas, pyarrow, DuckDB and Polars.

    Args:    table: the directory, as --table of the export.
    Raises:  NotATableError for an absent table.
    """
    found: Dataset = importlib.import_module("magnetar.pipeline.lake.parquet").dataset(table)
    return found


if "pyspark.sql" in sys.modules:
    importlib.import_module("magnetar.pipeline.registration").register_if_active()
