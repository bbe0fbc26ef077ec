"""Rules of every test."""

import ast
import gc
import os

import pytest
import structlog
from hypothesis import settings

from tests.environment import isolate

# Time limits of single examples say more about the machine than about the code: there are none.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

isolate(os.environ)

_parse = ast.parse


def _parsed(*args, **values):
    """CPython 3.11 raises SystemError when the garbage collector runs inside `ast.parse` and frees an object whose
    warning formats a traceback: that parses as well. pytest and hypothesis parse sources during any test.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return _parse(*args, **values)
    finally:
        if collects:
            gc.enable()


ast.parse = _parsed

_configure = structlog.configure


def _configured(*args, **values):
    """A logger that kept the configuration of its first line would write past `capture_logs` of a later test."""
    _configure(*args, **(values | {"cache_logger_on_first_use": False}))


structlog.configure = _configured


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import the tests without collections of garbage: next to no object of an import becomes garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish():
    """Keep the modules and the collected tests out of each later collection of garbage: the collections took a sixth of
    the processor time of the unit tests. Full collections of the other objects come a tenth as often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], 100)


def pytest_runtest_teardown():
    """Reset the configuration of logs after each test, so that the next test starts without it."""
    if structlog.is_configured():
        structlog.reset_defaults()
