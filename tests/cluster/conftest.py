"""Fixtures of real services. Without Java and Maven all of these tests are skipped with one line; with CI=true their
absence is a failure. MAGNETAR_CLUSTER_LONG=1 (``make cluster``) adds tests that take minutes.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

import pytest

from tests.cluster.real_cluster import RealCluster, missing

LONG = os.environ.get("MAGNETAR_CLUSTER_LONG") == "1"


SHARED = pytest.StashKey[RealCluster]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Repair the shared services after a failed test: it may have failed between a fault and its end."""
    report = yield
    shared = item.session.stash.get(SHARED, None)
    if report.failed and shared is not None:
        shared.mend()
    return report


@pytest.fixture(scope="session")
def _services():
    reason = missing()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _all_bookies(request):
    """A test begins with all bookies, also behind a test that stopped ZooKeeper."""
    shared = request.session.stash.get(SHARED, None)
    if shared is not None and shared.disturbed and "cluster" in request.fixturenames:
        shared.make_whole()


@pytest.fixture(scope="session")
def cluster(_services, request):
    """ZooKeeper and three bookies, shared by all tests of the session: a test must leave all of them running."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-cluster-"))
    made = RealCluster(directory)
    request.session.stash[SHARED] = made
    try:
        made.up(3)
        with made.supervised():  # a bookie may end behind the test that stopped ZooKeeper
            yield made
    finally:
        del request.session.stash[SHARED]  # a failure from here on repairs nothing
        made.down()
        shutil.rmtree(directory, ignore_errors=True)
