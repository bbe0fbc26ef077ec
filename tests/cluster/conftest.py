"""Fixtures of real services. Without Java and Maven all of these tests are skipped with one line; with CI=true that is
a failure. MAGNETAR_CLUSTER_LONG=1 (``make cluster``) adds what takes minutes.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

import pytest

from tests.cluster.real_cluster import RealCluster, missing

LONG = os.environ.get("MAGNETAR_CLUSTER_LONG") == "1"


@pytest.fixture(scope="session")
def _services():
    reason = missing()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster(_services):
    """ZooKeeper and three bookies, shared by all tests of the session: leave all three running."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-cluster-"))
    made = RealCluster(directory)
    try:
        made.up(3)
        yield made
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)
