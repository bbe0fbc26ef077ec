"""The packages that Spark needs: PySpark of a supported version, and Java. Errors name the package to install."""

from __future__ import annotations

import os
import pathlib
import shutil

from magnetar.pipeline.errors import PipelineError

NO_JAVA = (
    "Spark needs a Java runtime, version 17 or newer, and finds none: install one (Debian, Ubuntu: apt install "
    "openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
)
NO_PYSPARK = "the pipeline needs PySpark 4.2 or newer: pip install 'magnetar[spark]'"


class MissingError(PipelineError):
    """A required package is not installed. The text names the package and the command."""


def check_pyspark() -> None:
    """Raises MissingError when PySpark is missing or too old."""
    try:
        import pyspark  # noqa: PLC0415 - the extra may be absent
        import pyspark.sql.datasource  # noqa: PLC0415
    except ImportError as error:
        raise MissingError(f"{NO_PYSPARK} ({error})") from error
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < (4, 2):
        raise MissingError(f"{NO_PYSPARK}; there is {pyspark.__version__}")


def check_java() -> None:
    """Raises MissingError when no Java is found. With Spark Connect only the server needs Java."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") or (home and pathlib.Path(home, "bin", "java").exists())
    if not found and not os.environ.get("SPARK_REMOTE"):
        raise MissingError(NO_JAVA)
