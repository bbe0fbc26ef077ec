"""The packages that jobs need: PySpark of a supported version, Java, those of a table. Errors name the package."""

from __future__ import annotations

import os
import pathlib
import shutil

from magnetar.pipeline.errors import PipelineError

NO_JAVA = (
    "Spark needs a Java runtime, version 17 or newer, and finds none: install one (Debian, Ubuntu: apt install "
    "openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
)
NO_PYSPARK = "the pipeline needs PySpark 4.2 or newer: pip install '/path/to/magnetar[spark]'"


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
    fault = fault_of_java()
    if fault is not None and not os.environ.get("SPARK_REMOTE"):
        raise MissingError(fault)


def fault_of_java() -> str | None:
    """Why Spark would find no Java; None if it finds one. Spark prefers JAVA_HOME to the path, also without a Java."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None if shutil.which("java") else NO_JAVA
    if pathlib.Path(home, "bin", "java").exists():
        return None
    return f"JAVA_HOME={home} has no bin/java: correct or unset it. {NO_JAVA}"
