"""A log that cannot be written loses lines, nothing else."""

import errno

import structlog

from magnetar.broker import logs


class FullDisk:
    """Standard error on a disk without room."""

    def isatty(self):
        return False

    def write(self, _text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_under_the_log_is_no_error(monkeypatch):
    monkeypatch.setattr(logs.sys, "stderr", FullDisk())
    try:
        logs.configure_logs()
        structlog.get_logger("test").warning("append.failed", error="full")
    finally:
        structlog.reset_defaults()
