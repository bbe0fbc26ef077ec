"""`magnetar kafka import` into a broker of its own: MB/s of file, and CPU seconds of both processes per 100 MB.

    python bench/kafka_import_bench.py [--megabytes 200] [--batch-records 30]

The file is a segment of magic 2 batches of 500 byte records; each batch becomes an entry that is on the disk when its
receipt comes. Planning alone (`--dry-run`) is shown beside it.
"""

import argparse
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile
import time

from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, patch_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.records import Record

MAGNETAR = [sys.executable, "-m", "magnetar"]


def write_segment(path, megabytes, batch_records, codec):
    """Write the same batch repeatedly, each copy at the next offsets."""
    chance = random.Random(7)
    words = [chance.randbytes(3).hex() for _ in range(1000)]
    records = [
        Record(
            n, 1_700_000_000_000 + n, b"key-%d" % n, " ".join(chance.choice(words) for _ in range(72)).encode()[:500]
        )
        for n in range(batch_records)
    ]
    batch = bytearray(build_record_batch(records, BatchOptions(codec=codec)))
    count = megabytes * 1_000_000 // len(batch) + 1
    with open(path, "wb") as out:
        for n in range(count):
            patch_batch(batch, 0, n * batch_records, 0)
            out.write(batch)
    return path.stat().st_size


def timed(command):
    """(wall seconds, CPU seconds) of a process that must succeed."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cpu_of(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def run(folder, megabytes, batch_records, codec):
    path = folder / f"{'0' * 20}.log"
    size = write_segment(path, megabytes, batch_records, codec) / 1e6
    command = [*MAGNETAR, "standalone", "--data-dir", str(folder / f"data-{codec.name}")]
    for setting in ("brokerServicePort=0", "webServicePort=0", "brokerDeduplicationEnabled=true"):
        command += ["--set", setting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        try:
            service, http = re.search(r"ready (\S+) (\S+)", broker.stdout.readline()).groups()
            importing = [*MAGNETAR, "kafka", "import", str(path), "--topic", "t", "--quiet"]
            dry, _ = timed([*importing, "--dry-run"])
            before = cpu_of(broker.pid)
            wall, cpu = timed([*importing, "--service-url", service, "--admin-url", http])
            broker_cpu = cpu_of(broker.pid) - before
        finally:
            broker.terminate()
    each = f"{cpu * 100 / size:.2f} s importer, {broker_cpu * 100 / size:.2f} s broker"
    print(
        f"{codec.name.lower():<7}{size:6.0f} MB: {size / wall:6.0f} MB/s, CPU a 100 MB: {each}; dry run {size / dry:.0f} MB/s"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--batch-records", type=int, default=30)
    options = parser.parse_args()
    for codec in (Codec.NONE, Codec.LZ4):
        with tempfile.TemporaryDirectory(prefix="magnetar-bench-") as folder:
            run(pathlib.Path(folder), options.megabytes, options.batch_records, codec)


if __name__ == "__main__":
    main()
