"""A store that fails while the checkpoint thread works: the plan ends by itself, and no caller waits for ever.

The parts that the checkpointer directs are recorded here; crash tests run it with the real parts.
"""

import asyncio
import errno
from types import SimpleNamespace

import pytest

from magnetar.storage.embedded.checkpoint_file import Checkpoint
from magnetar.storage.embedded.checkpoint_plan import TouchedLedgers
from magnetar.storage.embedded.checkpoints import CheckpointDue, Checkpointer
from magnetar.storage.embedded.health import Health
from magnetar.storage.errors import StorageFailedError
from tests.storage.engine_for_tests import ManualClock, ManualScheduler, limits_for_tests, settle


class Bench:
    def __init__(self):
        clock = ManualClock()
        self.jobs, self.plans, self.health = [], [], Health()
        self.journal = SimpleNamespace(released_sequence=0)
        self.behind = SimpleNamespace(put=self.jobs.append, press=lambda: None, unwritten_bytes=0)
        due = CheckpointDue(ManualScheduler(clock), 1.0)
        writer, touched = SimpleNamespace(work=None), TouchedLedgers(Checkpoint(0, 0, 0, {}), lambda: 0)
        self.checkpoints = Checkpointer(touched, writer, self.behind, due, limits_for_tests(), self, clock, self.health)
        self.released = []
        appends = SimpleNamespace(last_sequence=7, held=None, release=self.released.append)
        self.checkpoints.wire(appends, self.journal)

    def lane(self, _name, _work, done):
        self.ended = lambda error: done(self.plans, None, error)
        return SimpleNamespace(submit=self.plans.append)

    async def in_the_thread(self):
        """A checkpoint whose plan is in the checkpoint thread, and its caller."""
        waiting = asyncio.ensure_future(self.checkpoints.wait())
        await settle()
        self.jobs.pop().done()
        assert self.plans
        return waiting

    def write_behind_fails(self):
        self.behind.on_written([], None, OSError(errno.EIO, "bad sector"))
        assert isinstance(self.health.failed, StorageFailedError)


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "bad sector")])
async def test_a_checkpoint_ends_by_itself_after_write_behind_has_failed(error):
    bench = Bench()
    waiting = await bench.in_the_thread()
    bench.write_behind_fails()
    bench.ended(error)
    await settle()
    assert waiting.done()
    assert bench.journal.released_sequence == (7 if error is None else 0)


async def test_a_caller_of_the_next_checkpoint_does_not_wait_in_a_failed_store():
    bench = Bench()
    first = await bench.in_the_thread()
    second = asyncio.ensure_future(bench.checkpoints.wait())
    await settle()
    bench.health.fail(StorageFailedError("journal: bad sector"))
    bench.ended(None)
    await settle()
    assert first.done()
    assert second.done()


async def test_a_plan_that_waits_for_write_behind_is_dropped_when_write_behind_fails():
    bench = Bench()
    waiting = asyncio.ensure_future(bench.checkpoints.wait())
    await settle()
    bench.write_behind_fails()
    await settle()
    assert waiting.done()
    bench.jobs.pop().done()
    assert not bench.plans


async def test_appends_that_wait_for_write_behind_fail_with_it():
    """Such appends waited until the store closed, and the topics that close before the store waited for them."""
    bench = Bench()
    bench.write_behind_fails()
    assert bench.released == [bench.health.failed]
