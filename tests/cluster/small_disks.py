"""A cluster of ZooKeeper and bookies with a part of each bookie's data on a small file system of its own."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from tests.cluster.real_cluster import RealCluster


@contextlib.contextmanager
def cluster_on_small_disks(names, part, size, settings):
    """Yield the cluster; skip the test without the right to mount. part: the folder of a bookie, for example "ledgers";
    size: of a file system, as mount takes it; settings: of the bookies.
    """
    directory = pathlib.Path(tempfile.mkdtemp(prefix=f"magnetar-{part}-"))
    made = RealCluster(directory)
    disks = [directory / name / part for name in names]
    try:
        for disk in disks:
            disk.mkdir(parents=True)
            mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=False)
            if mounted.returncode:
                pytest.skip("needs the right to mount a file system")
        made.up(len(names), BK_CONF=settings)
        yield made
    finally:
        made.down()
        for disk in disks:
            subprocess.run(["umount", disk], check=False)
        shutil.rmtree(directory, ignore_errors=True)
