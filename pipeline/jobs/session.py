"""The Spark session of a command, or none."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING, Final

from magnetar.pipeline.errors import PipelineError
from magnetar.pipeline.jobs.runner import LocalRunner, SparkRunner
from magnetar.pipeline.needed_packages import fault_of_java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.pipeline.jobs.runner import Runner

NO_SPARK: Final = "none"
_ATTEMPTS: Final = 4
_SETTINGS: Final = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.log.level": "ERROR",
}


class SparkUnavailableError(PipelineError):
    """Spark cannot run on this machine; the text names the package to install."""


def ensure_spark() -> None:
    """Raises: SparkUnavailableError when pyspark or Java is missing."""
    try:
        import pyspark  # noqa: F401, PLC0415 - only to know
    except ImportError as error:
        raise SparkUnavailableError(
            f"{error}: pip install '/path/to/magnetar[spark]', or run with --master none"
        ) from error
    if (fault := fault_of_java()) is not None:
        raise SparkUnavailableError(f"{fault}. Or run with --master none")


def with_retries(master: str) -> str:
    """The master, for a local master with four attempts per task as in a cluster; Spark's default there is one."""
    cores = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    return f"local[{cores[1] or 1},{_ATTEMPTS}]" if cores else master


@contextlib.contextmanager
def open_runner(master: str, *, needs_spark: bool = False) -> Iterator[Runner]:
    """A runner on a session of this master; `none` runs in this process, `sc://...` is Spark Connect.

    Raises: SparkUnavailableError.
    """
    if master == NO_SPARK:
        if needs_spark:
            raise SparkUnavailableError("this job needs Spark: leave out --master none")
        yield LocalRunner()
        return
    ensure_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - seconds, only when it is used

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("magnetar pipeline")
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        builder = builder.master(with_retries(master))
        for key, value in _SETTINGS.items():
            builder = builder.config(key, value)
        if master.startswith("local"):
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    try:
        yield SparkRunner(session)
    finally:
        session.stop()
