"""The memory that the broker may use, and the warning of settings that exceed it."""

import os
import resource

import pytest
from structlog.testing import capture_logs

from magnetar.broker.memory_limit import usable_bytes, warn_of_little_memory
from magnetar.broker.running import memory_budgets
from magnetar.broker.settings import Settings

MACHINE = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
MIB = 1 << 20


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_without_groups_the_machine_is_the_limit(tmp_path):
    assert usable_bytes(tmp_path) == MACHINE
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert usable_bytes(tmp_path) == MACHINE


def test_the_limit_of_a_unit_is_found_by_the_path_of_its_group(tmp_path):
    """The broker looked at the root of all groups alone, which has no limit outside of containers."""
    write(tmp_path, "proc/self/cgroup", "0::/system.slice/magnetar.service\n")
    write(tmp_path, "sys/fs/cgroup/system.slice/magnetar.service/memory.max", f"{200 * MIB}\n")
    assert usable_bytes(tmp_path) == 200 * MIB
    write(tmp_path, "sys/fs/cgroup/system.slice/memory.max", f"{150 * MIB}\n")
    assert usable_bytes(tmp_path) == 150 * MIB, "the limit of a parent holds too"


@pytest.mark.parametrize("seen", ["docker/1/", ""])
def test_groups_of_version_1(tmp_path, seen):
    write(tmp_path, "proc/self/cgroup", "4:memory:/docker/1\n0::/\n")
    write(tmp_path, f"sys/fs/cgroup/memory/{seen}memory.limit_in_bytes", f"{150 * MIB}\n")
    assert usable_bytes(tmp_path) == 150 * MIB


def test_settings_that_exceed_the_limit_are_named_with_a_remedy():
    budgets = memory_budgets(Settings())
    with capture_logs() as logged:
        warn_of_little_memory(budgets, 150 * MIB)
    (line,) = logged
    assert (line["event"], line["log_level"]) == ("memory.limit_exceeded_by_settings", "warning")
    assert (line["limit_mb"], line["settings_mb"]) == (150, 860)
    assert "maxMessagePublishBufferSizeInMB=256" in line["settings"]
    assert "docs/operation.md" in line["remedy"]


def test_enough_memory_needs_no_word():
    with capture_logs() as logged:
        warn_of_little_memory(memory_budgets(Settings()), 1 << 30)
        warn_of_little_memory({"maxMessagePublishBufferSizeInMB": 8, "maxClientMemoryInMB": 16}, 128 * MIB)
    assert logged == []
