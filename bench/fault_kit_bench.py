"""How long a test waits for its broker: until a start is ready, and until a snapshot is restored.

    python bench/fault_kit_bench.py [--times 20]

Wall time, and the processor time of the broker in it. Where other work runs on the machine, `chrt -r 10` before the
command gives the figures of a quiet machine.
"""

import argparse
import os
import pathlib
import statistics
import time

import pulsar

import magnetar

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def processor_ms(pid):
    fields = pathlib.Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_MS


def pid_of(broker):
    return int((broker.data_dir / "LOCK").read_text())


def report(name, wall_s, processor):
    wall = sorted(each * 1000 for each in wall_s)
    print(
        f"{name}: median {statistics.median(wall):.0f} ms ({wall[0]:.0f} to {wall[-1]:.0f}), "
        f"processor {statistics.mean(processor):.0f} ms"
    )


def starts(times):
    wall, processor = [], []
    for _ in range(times):
        began = time.perf_counter()
        with magnetar.start() as broker:
            wall.append(time.perf_counter() - began)
            processor.append(processor_ms(pid_of(broker)))
    report("start until ready", wall, processor)


def restores(times):
    wall, processor = [], []
    with magnetar.start(faults=True) as broker:
        client = pulsar.Client(broker.url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
        producer = client.create_producer("orders")
        for number in range(100):
            producer.send(b"order %d" % number)
        client.close()
        snapshot = broker.faults.snapshot()
        for _ in range(times):
            began, used = time.perf_counter(), processor_ms(pid_of(broker))
            snapshot.restore()
            wall.append(time.perf_counter() - began)
            processor.append(processor_ms(pid_of(broker)) - used)
    report("restore of a snapshot with 100 messages, over HTTP", wall, processor)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    options = parser.parse_args()
    starts(options.times)
    restores(options.times)


if __name__ == "__main__":
    main()
