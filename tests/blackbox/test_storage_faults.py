"""A disk that is full, fails, or holds garbage, under a real process: typed errors, nothing receipted is lost."""

import contextlib
import pathlib
import shutil
import subprocess
import time

import pulsar
import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.blackbox.clients import quiet_client, read_all
from tests.blackbox.raw import RawPeer, send
from tests.blackbox.test_start import run_standalone
from tests.waiting import wait_for

TOPIC = "persistent://public/default/faults"
KEEP = {"defaultRetentionTimeInMinutes": -1, "defaultRetentionSizeInMB": -1}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The library that makes calls to the disk fail."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    source = pathlib.Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True, timeout=60)
    return library


@pytest.fixture
def faulty(shim, tmp_path, new_broker):
    """A broker, and a call that sets the fault of its disk: none, full, sync."""
    control = tmp_path / "control"
    environment = {"LD_PRELOAD": str(shim), "FAULT_CONTROL": str(control), "FAULT_ROOT": str(tmp_path / "data")}
    broker = new_broker(env=environment, **KEEP)
    return broker, control.write_text


def publish(url, first, count, size=0):
    client = quiet_client(url)
    producer = client.create_producer(TOPIC, batching_enabled=False, block_if_queue_full=True)
    for number in range(first, first + count):
        producer.send_async((b"%d" % number).ljust(size), lambda *_: None)
    producer.flush()
    client.close()


def stored(url):
    return [int(data) for _, data, _ in read_all(url, TOPIC)]


# The log lies on the full disk too: a failed log line must not change the behaviour of the broker.
def test_a_full_disk_is_reported_and_service_resumes_by_itself(faulty):
    broker, disk = faulty
    publish(broker.url, 0, 20)
    client = quiet_client(broker.url)
    producer = client.create_producer(TOPIC, batching_enabled=False, send_timeout_millis=30_000)
    peer = RawPeer(broker.url)
    peer.producer(TOPIC)
    disk("full")
    outcome = []
    peer.write(send(1, 0, b"1000"))
    peer.socket.settimeout(1)
    try:
        answer = peer.receive()
    except TimeoutError:  # held until there is space again
        answer = None
    if answer is not None and answer.type == pb.BaseCommand.SEND_ERROR:
        assert answer.send_error.error == pb.PersistenceError
    else:
        assert answer is None or answer.type == pb.BaseCommand.CLOSE_PRODUCER
    producer.send_async(b"20", lambda result, _id: outcome.append(result))
    time.sleep(1)
    assert outcome == []
    assert broker.process.poll() is None
    assert stored(broker.url) == list(range(20))  # readers go on
    disk("none")
    wait_for(lambda: outcome, subject="the receipt")
    assert outcome == [pulsar.Result.Ok]
    client.close()
    peer.close()
    broker.kill()
    broker.start()
    found = stored(broker.url)
    assert [number for number in found if number != 1000] == list(range(21))


def test_a_failed_sync_ends_acknowledgement_and_the_process(faulty):
    broker, disk = faulty
    publish(broker.url, 0, 50)
    peer = RawPeer(broker.url)
    peer.producer(TOPIC)
    disk("sync")
    for number in range(5):
        peer.write(send(1, number, b"%d" % (50 + number)))
    receipts = []
    while (found := peer.receive()) is not None:
        receipts += [found] if found.type == pb.BaseCommand.SEND_RECEIPT else []
    assert receipts == []
    assert broker.wait_exit() == 74
    assert "storage_failed" in broker.log_text()
    disk("none")
    broker.start()
    found = stored(broker.url)
    assert found[:50] == list(range(50))
    publish(broker.url, 100, 1)
    assert stored(broker.url)[-1] == 100
    peer.close()


def test_garbage_files_are_ignored(new_broker):
    broker = new_broker(**KEEP)
    publish(broker.url, 0, 100)
    assert broker.stop() == 0
    for name in (
        "garbage",
        "ledgers/junk.ledger",
        "ledgers/000000999999.ledger",
        "journal/x",
        "journal/00099999.journal",
        "metadata.bak",
    ):
        (broker.data_dir / name).write_bytes(b"\xff\x00garbage" * 1000)
    broker.start()
    assert stored(broker.url) == list(range(100))
    publish(broker.url, 100, 10)
    assert broker.stop() == 0
    kept = [p for p in broker.data_dir.rglob("*") if p.is_file() and b"garbage" in p.read_bytes()[:100]]
    assert len(kept) == 6, "an unknown file is set aside, never deleted"


def damaged_ledger(broker, change):
    """Stop, damage the ledger file with the messages, start."""
    assert broker.stop() == 0
    files = sorted((broker.data_dir / "ledgers").glob("*.ledger"), key=lambda p: p.stat().st_size)
    data = bytearray(files[-1].read_bytes())
    change(data)
    files[-1].write_bytes(data)
    broker.start()


def entries_readable(broker, ledger_count):
    """The numbers of the messages that a reader finds when it starts at each message's position."""
    client = quiet_client(broker.url)
    found = set()
    for start in ledger_count:
        reader = client.create_reader(TOPIC, start, receiver_queue_size=10, start_message_id_inclusive=True)
        with contextlib.suppress(pulsar.Timeout):
            found.add(int(reader.read_next(700).data()))
        reader.close()
    client.close()
    return found


def test_a_flipped_bit_costs_one_entry_and_is_reported(new_broker):
    broker = new_broker(**KEEP)
    client = quiet_client(broker.url)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    ids = [producer.send((b"%d" % number).ljust(300)) for number in range(30)]
    client.close()

    def flip(data):
        data[data.index(b"17".ljust(300)) + 100] ^= 1

    damaged_ledger(broker, flip)
    found = entries_readable(broker, ids)
    assert found == set(range(30)) - {17}
    assert str(ids[17].entry_id()) in broker.log_text()
    assert "read.failed" in broker.log_text()
    publish(broker.url, 30, 1)
    assert broker.stop() == 0
    report = subprocess.run(
        [*_magnetar(), "verify", str(broker.data_dir)], capture_output=True, text=True, timeout=60, check=False
    )
    assert report.returncode == 1
    assert "DAMAGED" in report.stdout


def _magnetar():
    import sys

    return [sys.executable, "-m", "magnetar"]


def test_a_truncated_ledger_file_costs_the_cut_entries_and_is_reported(new_broker):
    broker = new_broker(**KEEP)
    client = quiet_client(broker.url)
    producer = client.create_producer(TOPIC, batching_enabled=False)
    ids = [producer.send((b"%d" % number).ljust(300)) for number in range(30)]
    client.close()

    def cut(data):
        del data[data.index(b"25".ljust(300)) + 10 :]

    damaged_ledger(broker, cut)
    found = entries_readable(broker, ids)
    assert set(range(25)) <= found
    if len(found) < 30:
        assert "read.failed" in broker.log_text()
    publish(broker.url, 30, 1)
    assert broker.stop() == 0


def test_a_damaged_version_file_is_written_anew(new_broker):
    broker = new_broker(**KEEP)
    publish(broker.url, 0, 10)
    assert broker.stop() == 0
    (broker.data_dir / "VERSION").write_bytes(b"\x00garbage\xff")
    broker.start()
    assert stored(broker.url) == list(range(10))
    assert "VERSION" in broker.log_text()


def test_a_newer_format_is_refused_and_left_alone(new_broker):
    import crc32c

    broker = new_broker(**KEEP)
    publish(broker.url, 0, 10)
    assert broker.stop() == 0
    version = broker.data_dir / "VERSION"
    mine = version.read_bytes()
    prefix, _number, store_id, _crc = mine.decode().split()
    line = f"{prefix} 99 {store_id}"
    version.write_text(f"{line} {crc32c.crc32c(line.encode()):08x}\n")
    newer = version.read_bytes()
    refused = run_standalone(broker.data_dir)
    assert refused.returncode == 74
    assert "99" in refused.stderr
    assert "VERSION" in refused.stderr
    assert version.read_bytes() == newer
    version.write_bytes(mine)
    broker.start()
    assert stored(broker.url) == list(range(10))


def test_a_disk_that_takes_a_second_to_sync_slows_receipts_and_nothing_else(faulty):
    broker, disk = faulty
    publish(broker.url, 0, 50)
    disk("slow")
    peer = RawPeer(broker.url)
    peer.producer(TOPIC, producer_name="patient")
    started = time.monotonic()
    for number in range(50, 150):
        peer.write(send(1, number, b"%d" % number))
    assert stored(broker.url)[:50] == list(range(50))  # reading does not wait for the disk
    other = RawPeer(broker.url)
    asked = time.monotonic()
    other.subscribe(TOPIC, "s", permits=10, durable=False)
    assert other.receive().type == pb.BaseCommand.MESSAGE
    assert time.monotonic() - asked < 0.9, "the loop waits for a sync"
    first = peer.receive()
    waited = time.monotonic() - started
    assert first.type == pb.BaseCommand.SEND_RECEIPT
    assert waited > 0.9, "a receipt came before its sync"
    receipts = [first.send_receipt.sequence_id] + [peer.receive().send_receipt.sequence_id for _ in range(99)]
    assert receipts == list(range(50, 150))
    assert time.monotonic() - started < 15, "what waits shares a sync"
    disk("none")
    other.close()
    peer.close()
    broker.kill()
    broker.start()
    assert stored(broker.url) == list(range(150))
