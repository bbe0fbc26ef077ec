"""Traffic of the network interfaces of the machine."""

from __future__ import annotations

import pytest

from magnetar.broker.network_load import NetworkLoad


class Machine:
    """Interfaces as files, and a clock."""

    def __init__(self, directory):
        self.directory = directory
        self.now_s = 100.0

    def interface(self, name, received, sent, *, speed=None, physical=True):
        path = self.directory / name
        (path / "statistics").mkdir(parents=True, exist_ok=True)
        (path / "statistics" / "rx_bytes").write_text(f"{received}\n")
        (path / "statistics" / "tx_bytes").write_text(f"{sent}\n")
        if physical:
            (path / "device").mkdir(exist_ok=True)
        if speed is not None:
            (path / "speed").write_text(f"{speed}\n")

    def load(self, *more):
        return NetworkLoad(*more, now_s=lambda: self.now_s, interfaces=self.directory)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_the_traffic_of_physical_interfaces_between_two_looks_counts(machine):
    machine.interface("eth0", 1000, 5000, speed=10_000)
    machine.interface("eth1", 0, 0, speed=1000)
    machine.interface("lo", 0, 0, physical=False)
    load = machine.load()
    assert load.kbits() == (0.0, 0.0)
    assert load.limit_kbits() == 11_000_000
    machine.interface("eth0", 1000 + 250_000, 5000 + 500_000)
    machine.interface("eth1", 250_000, 0)
    machine.interface("lo", 10**9, 10**9, physical=False)
    assert load.kbits() == (0.0, 0.0), "less than a second has passed"
    machine.now_s += 2.0
    assert load.kbits() == (2000.0, 2000.0)
    machine.now_s += 0.5
    assert load.kbits() == (2000.0, 2000.0)
    machine.now_s += 2.0
    assert load.kbits() == (0.0, 0.0)


def test_names_and_speed_may_be_given(machine):
    machine.interface("eth0", 0, 0, speed=10_000)
    machine.interface("bond0", 0, 0, speed=-1, physical=False)
    assert machine.load(("bond0",)).limit_kbits() == 0.0
    load = machine.load(("bond0",), 2.5)
    assert load.limit_kbits() == 2_500_000
    machine.interface("eth0", 10**6, 10**6)
    machine.interface("bond0", 125_000, 0, physical=False)
    machine.now_s += 1.0
    assert load.kbits() == (1000.0, 0.0)


def test_a_machine_without_such_files_has_no_figures(machine, tmp_path):
    machine.directory = tmp_path / "none"
    load = machine.load()
    machine.now_s += 5.0
    assert (load.kbits(), load.limit_kbits()) == ((0.0, 0.0), 0.0)


def test_counters_that_begin_again_give_no_negative_rate(machine):
    machine.interface("eth0", 10**6, 10**6)
    load = machine.load()
    machine.interface("eth0", 0, 0)
    machine.now_s += 5.0
    assert load.kbits() == (0.0, 0.0)
