"""Rules of every test."""

import structlog
from hypothesis import settings

# Time limits of single examples say more about the machine than about the code: there are none.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

_configure = structlog.configure


def _configured(*args, **values):
    """A logger that kept the configuration of its first line would write past `capture_logs` of a later test."""
    _configure(*args, **(values | {"cache_logger_on_first_use": False}))


structlog.configure = _configured


def pytest_runtest_teardown():
    """A test that configures logs in this process leaves nothing of it to the next."""
    if structlog.is_configured():
        structlog.reset_defaults()
