"""Making `format("pulsar")` known to a Spark session."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

from magnetar.pipeline.errors import PipelineError
from magnetar.pipeline.needed_packages import check_java, check_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_REDACTION = "spark.sql.redaction.options.regex"
_SECRETS = "(?i)^basic$|authparams"
"""Options with secrets that Spark does not hide by itself in plans and in its web pages, as it hides `token`."""
_registered: WeakSet[SparkSession] = WeakSet()
"""The sessions that know the format."""


def register(spark: SparkSession | None = None) -> None:
    """Make the format known to a session (default: the active session), and let filters be pushed down to it. Python
    workers of a local session run this interpreter from now on. Spark hides options with secrets in plans.

    May be repeated. Raises MissingError; PipelineError when there is no session, or another data source of that name
    (the jar of pulsar-spark).
    """
    check_pyspark()
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the extra may be absent
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from magnetar.pipeline.source.data_source import PulsarDataSource  # noqa: PLC0415

    session = spark or SparkSession.getActiveSession()
    if session is None:
        check_java()  # a missing Java may be the reason
        raise PipelineError("there is no Spark session: make one first, or give it to register(spark)")
    use_this_python(session)
    try:
        if session not in _registered:  # Spark warns of a source in place of another, also of itself
            session.dataSource.register(PulsarDataSource)
            _registered.add(session)
    except PySparkException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise PipelineError(
            'this session has another data source called "pulsar" (the jar of pulsar-spark?); leave one of them out'
        ) from error
    session.conf.set(_PUSHDOWN, "true")
    hide_secrets(session)


def hide_secrets(session: SparkSession) -> None:
    """Add the options with secrets to those that the session hides; may be repeated."""
    hidden = session.conf.get(_REDACTION) or ""
    if _SECRETS not in hidden:
        session.conf.set(_REDACTION, f"{hidden}|{_SECRETS}" if hidden else _SECRETS)


def use_this_python(session: SparkSession) -> None:
    """Let Python workers of a local session run this interpreter, which has this package, unless the user chose one.

    Spark's default is the first `python3` of the path, often that of the system: a virtual environment that is not
    activated, as in an IDE, a notebook or a timer, is not on the path.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - the extra may be absent

    try:
        context = session.sparkContext
    except PySparkException:  # Spark Connect: the server has its own Python
        return
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not chosen:
        context.pythonExec = sys.executable


def register_if_active() -> None:
    """Call `register` on import of the room, when PySpark is in use and a session is active."""
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the extra may be absent

    if SparkSession.getActiveSession() is not None:
        register()
