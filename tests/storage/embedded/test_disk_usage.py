"""Appends stop above diskUsageThreshold and go on by themselves."""

import pytest

from magnetar.storage.embedded.disk_usage import DiskUsageWatch
from magnetar.storage.embedded.engine_settings import EngineSettings
from magnetar.storage.embedded.health import Health
from magnetar.storage.embedded.lanes import InlineThreads
from magnetar.storage.errors import StorageFullError
from tests.storage.engine_for_tests import ManualClock, ManualScheduler, settle


class Disk:
    """A file system of which the test sets the used part."""

    used = 0.0

    def used_part(self, path):
        assert path == "/data"
        if self.used is None:
            raise OSError(5, "Input/output error")
        return self.used


@pytest.fixture
async def watched():
    clock = ManualClock()
    scheduler, health, disk = ManualScheduler(clock), Health(), Disk()
    settings = EngineSettings(disk_usage_threshold=0.95, disk_usage_warn_threshold=0.9, disk_usage_check_s=10)
    watch = DiskUsageWatch(health, disk, "/data", scheduler, InlineThreads(), settings)

    async def look_again(used):
        disk.used = used
        scheduler.advance(10)
        await settle()

    yield health, look_again
    await watch.close()
    await look_again(0.99)
    assert health.full is None, "closed"


async def test_above_the_threshold_and_below_the_lower_one(watched):
    health, look_again = watched
    await look_again(0.95)
    assert health.full is None
    await look_again(0.96)
    assert isinstance(health.full, StorageFullError)
    assert "diskUsageThreshold is 95.00%" in str(health.full)
    await look_again(0.91)
    assert health.full is not None
    await look_again(0.9)
    assert health.full is None


async def test_a_file_system_that_cannot_be_measured_changes_nothing(watched):
    health, look_again = watched
    await look_again(0.99)
    await look_again(None)
    assert health.full is not None
    await look_again(0.5)
    assert health.full is None


@pytest.mark.parametrize(("most", "warn"), [(0.9, 0.95), (1.1, 1.0), (0.5, 0.0)])
def test_thresholds_that_make_no_sense(most, warn):
    with pytest.raises(ValueError, match="disk_usage"):
        EngineSettings(disk_usage_threshold=most, disk_usage_warn_threshold=warn)
