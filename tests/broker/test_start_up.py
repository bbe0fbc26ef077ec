"""Modules that are imported beside the loop."""

import asyncio
import sys
import threading

from magnetar.broker import start_up
from magnetar.broker.prometheus.exposition import PROCESS_LIBRARY
from magnetar.broker.start_up import import_later
from tests.broker.admin_fakes import open_client


class Searches:
    """Notes the threads that search for a module; finds none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.threads: list[int] = []

    def find_spec(self, name, _path=None, _target=None):
        if name == self.name:
            self.threads.append(threading.get_ident())


async def test_the_first_page_of_metrics_imports_its_library_in_a_thread(monkeypatch):
    """The import took 0.1 s of the loop."""
    call, searches = await open_client(), Searches(PROCESS_LIBRARY)
    await call("GET", "/metrics")  # the parts of the library are loaded, and stay so
    monkeypatch.setattr(start_up, "_imported", set())
    monkeypatch.delitem(sys.modules, PROCESS_LIBRARY)
    monkeypatch.setattr(sys, "meta_path", [searches, *sys.meta_path])
    pages = await asyncio.gather(*(call("GET", "/metrics") for _ in range(2)))
    assert all(b"process_cpu_seconds_total" in page.raw for page in pages)
    assert searches.threads
    assert threading.get_ident() not in searches.threads


async def test_imports_at_the_same_time_restore_the_interval_of_the_threads(monkeypatch):
    """The import that began second restored the interval of the first import, and the process kept it."""
    interval_s, ready = sys.getswitchinterval(), threading.Event()
    monkeypatch.setattr(start_up, "_imported", set())
    monkeypatch.setattr(start_up.importlib, "import_module", lambda name: name == "first" or ready.wait(10))
    second = asyncio.gather(import_later("first"), import_later("second"), return_exceptions=True)
    await import_later("first")
    assert sys.getswitchinterval() < interval_s
    ready.set()
    await second
    assert sys.getswitchinterval() == interval_s
