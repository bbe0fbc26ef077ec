"""The broker of a process with the fault kit, which a snapshot stops and starts again."""

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.testing import snapshots
from magnetar.testing.running import RunningBroker
from magnetar.testing.snapshots import SnapshotError


class FakeBroker:
    """A broker that only starts and stops."""

    def __init__(self):
        binary = SimpleNamespace(port=6650, port_tls=6651)
        self.listeners = SimpleNamespace(binary=binary, http_port=8080, http_port_tls=8443)
        self.stopped = asyncio.Event()

    async def start(self, _ready):
        """Nothing to do."""

    async def stop(self):
        self.stopped.set()

    async def wait_stopped(self):
        await self.stopped.wait()
        return 0


class FakeKit:
    """Builds fake brokers; `built` keeps them all."""

    def __init__(self):
        self.built = []

    def build(self, _settings):
        self.built.append(FakeBroker())
        return self.built[-1]


@pytest.fixture
async def running(tmp_path):
    changed = {}
    made = RunningBroker(SimpleNamespace(data_dir=str(tmp_path / "data"), change=changed.__setitem__, changed=changed))
    made.kit = FakeKit()
    (made.snapshots.live / "file").write_text("kept")
    await made.start()
    return made


async def test_the_next_broker_gets_every_port_of_the_first(running):
    names = ("broker_service_port", "broker_service_port_tls", "web_service_port", "web_service_port_tls")
    assert [running.settings.changed[name] for name in names] == [6650, 6651, 8080, 8443]


async def test_an_invalid_name_of_a_snapshot_does_not_stop_the_broker(running):
    with pytest.raises(SnapshotError):
        await running.take("no name")
    (broker,) = running.kit.built
    assert not broker.stopped.is_set()


async def test_a_copy_that_fails_leaves_a_broker_and_the_former_snapshot(running, monkeypatch):
    await running.take("one")

    def full(_source, target):
        target.mkdir()
        (target / "file").write_text("ke")
        raise OSError("No space left on device")

    monkeypatch.setattr(snapshots, "_copy", full)
    ending = asyncio.ensure_future(running.wait_stopped())
    with pytest.raises(OSError, match="No space left"):
        await running.take("one")
    assert len(running.kit.built) == 3, "the first broker, and another after each attempt"
    assert not running.kit.built[-1].stopped.is_set()
    assert running.snapshots.names() == ["one"]
    assert (running.snapshots.live.with_name("data.snapshot-one") / "file").read_text() == "kept"
    assert not ending.done()
    await running.kit.built[-1].stop()
    assert await asyncio.wait_for(ending, 10) == 0
