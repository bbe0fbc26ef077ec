"""Bookies that are silent for longer than an append waits: the broker reports appends as failed whose entries exist."""

from __future__ import annotations

import contextlib
import time
import uuid

import pytest

from magnetar.bookkeeper.options import ClientOptions
from tests.cluster.broker_processes import Member, connect, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.features import Scene, deduplication

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
SILENCE_S = ClientOptions().add_quorum_timeout_s + 6


def test_deduplication_stores_messages_of_failed_appends_once(cluster, tmp_path):
    initialize(cluster)
    with serving([Member(tmp_path, "o1", cluster.zookeeper)]) as members:
        client = connect(*members)
        scene = Scene(client, members, delay_s=0)
        namespace = f"public/{uuid.uuid4().hex}"
        scene.admin("PUT", f"namespaces/{namespace}")
        feature = deduplication(scene, f"persistent://{namespace}/t")
        next(feature)
        for bookie in ("b1", "b2"):
            cluster.stop(bookie)
        time.sleep(SILENCE_S)
        for bookie in ("b1", "b2"):
            cluster.go_on(bookie)
        with contextlib.suppress(StopIteration):
            next(feature)
        client.close()
        assert "must be opened anew" in (tmp_path / "o1.log").read_text()
