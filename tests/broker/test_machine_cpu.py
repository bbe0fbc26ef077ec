"""Processor time of the machine, or of the control group of the broker."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from magnetar.broker.machine_cpu import find_cpu

STAT = "cpu  100 20 30 5000 700 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n"


@pytest.fixture
def root(tmp_path):
    write(tmp_path, "proc/stat", STAT)
    return tmp_path


def write(root, path, text):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_machine_without_groups_counts_all_time_but_idle_and_waiting(root):
    cpu = find_cpu(root)
    assert cpu.used_s() == 171 / os.sysconf("SC_CLK_TCK")
    assert cpu.cores() == os.cpu_count()


def test_a_group_of_version_2_bounds_its_processes(root):
    write(root, "proc/self/cgroup", "0::/system.slice/broker.service\n")
    write(root, "sys/fs/cgroup/system.slice/broker.service/cpu.stat", "usage_usec 2500000\nuser_usec 1\n")
    cpu = find_cpu(root)
    assert cpu.used_s() == 2.5
    assert cpu.cores() == len(os.sched_getaffinity(0)), "the root of all groups has no limit"
    write(root, "sys/fs/cgroup/system.slice/broker.service/cpu.max", "max 100000\n")
    assert cpu.cores() == len(os.sched_getaffinity(0))
    write(root, "sys/fs/cgroup/system.slice/broker.service/cpu.max", "150000 100000\n")
    assert cpu.cores() == 1.5


def test_a_container_that_sees_the_path_of_its_host_has_the_root_it_sees(root):
    write(root, "proc/self/cgroup", "0::/kubepods/pod1\n")
    write(root, "sys/fs/cgroup/cpu.stat", "usage_usec 1000000\n")
    assert find_cpu(root).used_s() == 1.0


@pytest.mark.parametrize(("quota", "cores"), [("-1", None), ("50000", 0.5)])
def test_a_group_of_version_1(root, quota, cores):
    write(root, "proc/self/cgroup", "4:memory:/x\n3:cpuacct,cpu:/docker/1\n1:name=systemd:/\n0::/\n")
    write(root, "sys/fs/cgroup/cpuacct/docker/1/cpuacct.usage", "3000000000\n")
    write(root, "sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", quota)
    write(root, "sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000")
    cpu = find_cpu(root)
    assert (cpu.used_s(), cpu.cores()) == (3.0, cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("content", ["", "garbage", "0::", "1:cpuacct:/a\n0::/b\n"])
def test_groups_that_cannot_be_read_leave_the_machine(root, content):
    write(root, "proc/self/cgroup", content)
    write(root, "sys/fs/cgroup/b/cpu.stat", "user_usec 5\n")
    assert find_cpu(root).used_s() == 171 / os.sysconf("SC_CLK_TCK")


def test_the_time_of_other_processes_counts():
    cpu = find_cpu()
    before = cpu.used_s()
    busy = "import time\nwhile time.process_time() < 0.1: pass"
    subprocess.run([sys.executable, "-S", "-c", busy], check=True)
    assert cpu.used_s() - before > 0.05
    assert cpu.cores() > 0


def test_a_system_without_figures_of_the_machine_leaves_the_process(tmp_path, monkeypatch):
    """macOS has no /proc."""
    monkeypatch.delattr(os, "sched_getaffinity")
    found = find_cpu(tmp_path)
    before = time.process_time()
    assert before <= found.used_s() <= time.process_time()
    assert found.cores() == os.cpu_count()
