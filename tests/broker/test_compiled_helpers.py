"""The line of the log about compiled helpers that are not in use."""

import os
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from magnetar.broker.compiled_helpers import HELPERS, warn_of_missing_helpers

LOADED = "import sys, magnetar.broker.running; print(*sys.modules)"


def loaded(**environment):
    """The modules of a new process that has loaded a broker."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env={**os.environ, "MAGNETAR_PURE": "", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.skipif(bool(os.environ.get("MAGNETAR_PURE")), reason="helpers are off")
def test_a_broker_has_loaded_all_helpers_when_the_check_is_made():
    assert set(HELPERS) <= set(loaded())
    assert not set(HELPERS) & set(loaded(MAGNETAR_PURE="1"))


def test_a_start_names_the_missing_helpers(tmp_path):
    """A package that was installed without a compiler was slower, without a line in the log."""
    (tmp_path / "file").touch()
    start = [sys.executable, "-m", "magnetar", "standalone", "--data-dir", str(tmp_path / "file")]
    environment = {**os.environ, "MAGNETAR_PURE": "1"}
    done = subprocess.run(start, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 74, done.stderr
    assert "event=helpers.missing modules=" in done.stderr


def test_a_missing_helper_is_named(monkeypatch):
    for name in HELPERS:
        monkeypatch.setitem(sys.modules, name, sys)
    with capture_logs() as lines:
        warn_of_missing_helpers()
    assert lines == []
    monkeypatch.delitem(sys.modules, "magnetar.protocol._acks")
    with capture_logs() as lines:
        warn_of_missing_helpers()
    [line] = lines
    assert (line["event"], line["log_level"], line["modules"]) == ("helpers.missing", "warning", "protocol._acks")
