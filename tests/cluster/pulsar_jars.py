"""Where the jars of a real Apache Pulsar are, for tests only. ``python -m tests.cluster.pulsar_jars`` fetches them once by
Maven (about 250 MB, as part of `make cluster`) and keeps them in the user's cache.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

__all__ = ["NO_JARS", "find"]

VERSION = "4.2.4"
POM = pathlib.Path(__file__).with_name("pulsar-pom.xml")
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
NO_JARS = f"tests with Apache Pulsar need Java 17 and its jars: `make cluster` fetches those of {VERSION} (250 MB)"


def cached() -> pathlib.Path:
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return cache / "magnetar" / "pulsar" / VERSION


def find() -> str:
    """The directory of the jars: that of MAGNETAR_PULSAR_LIB, or that in the cache; empty without jars."""
    directory = pathlib.Path(os.environ.get("MAGNETAR_PULSAR_LIB") or cached())
    there = shutil.which("java") is not None and any(directory.glob("*pulsar-broker-*.jar"))
    return str(directory) if there else ""


def fetch() -> str:
    """An empty text, or why there are no jars."""
    if find():
        return ""
    absent = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if absent:
        return f"{' and '.join(absent)} not found"
    part = cached().with_name(f"{VERSION}.part")
    shutil.rmtree(part, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-ntp", "-f", str(POM), GOAL, f"-DoutputDirectory={part}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode != 0:
        return (done.stdout.strip().splitlines() or ["no message"])[-1]
    part.rename(cached())
    return ""


if __name__ == "__main__":
    reason = fetch()
    if reason:
        sys.stderr.write(f"no jars of Apache Pulsar: {reason}\n")
