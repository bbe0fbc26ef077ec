"""CPU of the machine and memory of this process in percent."""

import resource
from types import SimpleNamespace

from magnetar.broker import process_load
from magnetar.broker.memory_limit import usable_bytes
from magnetar.broker.process_load import ProcessLoad, process_cpu_s, resident_bytes


def test_the_cpu_figure_covers_the_time_since_the_look_before():
    now_s, used_s = [10.0], [3.0]
    load = ProcessLoad(lambda: now_s[0], SimpleNamespace(used_s=lambda: used_s[0], cores=lambda: 4.0))
    now_s[0], used_s[0] = 30.0, 83.0
    assert load.cpu_percent() == 0.0, "the first minute has no figure: a start is a peak"
    now_s[0], used_s[0] = 90.0, 83.0
    assert load.cpu_percent() == 25.0
    now_s[0], used_s[0] = 140.0, 113.0
    assert load.cpu_percent() == 25.0, "looks less than a minute apart give the same figure"
    now_s[0] = 150.0
    assert load.cpu_percent() == 12.5


def test_the_cpu_figure_stays_where_the_time_cannot_be_read():
    now_s, failure = [10.0], []

    def used_s():
        if failure:
            raise failure[0]
        return now_s[0]

    load = ProcessLoad(lambda: now_s[0], SimpleNamespace(used_s=used_s, cores=lambda: 2.0))
    now_s[0] = 110.0
    assert load.cpu_percent() == 50.0
    now_s[0] = 210.0
    failure.append(OSError("no such file"))
    assert load.cpu_percent() == 50.0


def test_the_figures_of_this_process_are_plausible():
    assert process_cpu_s() > 0
    assert 1 << 20 < resident_bytes() < usable_bytes()
    assert 0 < ProcessLoad().memory_percent() < 100


def test_without_proc_the_memory_is_the_most_that_the_process_had(tmp_path, monkeypatch):
    monkeypatch.setattr(process_load, "_STATM", tmp_path / "statm")
    assert process_load.resident_bytes() == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
