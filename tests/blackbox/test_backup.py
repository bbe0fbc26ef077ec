"""Images of a broker that takes messages: each holds every message whose receipt came before, in order, and starts."""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from tests.blackbox.clients import quiet_client, read_all
from tests.waiting import wait_for


def magnetar(*arguments, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


class Publisher:
    """Publishes numbers one after the other until it is stopped; `stored`: how many have their receipt."""

    def __init__(self, url):
        self.stored, self.failed, self._stop = 0, None, threading.Event()
        self._url = url
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        client = quiet_client(self._url)
        producer = client.create_producer("numbers", batching_enabled=False)
        try:
            while not self._stop.is_set():
                producer.send(b"%d" % self.stored)
                self.stored += 1
        except Exception as error:
            self.failed = error
        client.close()

    def end(self):
        self._stop.set()
        self._thread.join(60)
        assert self.failed is None
        return self.stored

    def wait(self, count):
        wait_for(lambda: self.failed or self.stored >= count, 60, "the next receipts", every=0.01)
        assert self.failed is None


def numbers(url):
    return [int(data) for _, data, _ in read_all(url, "numbers")]


def test_images_hold_acknowledged_messages_and_restore_a_moment(new_broker, tmp_path):
    broker = new_broker(managedLedgerMaxEntriesPerLedger=60, managedLedgerMinLedgerRolloverTimeMinutes=0)
    keeper = quiet_client(broker.url)
    keeper.subscribe("numbers", "keep")  # so that nothing is trimmed
    keeper.close()
    publisher, folder, floors = Publisher(broker.url), tmp_path / "images", []
    facts = []
    for count in (150, 250, 350):
        publisher.wait(count)
        floors.append(publisher.stored)
        facts.append(json.loads(magnetar("backup", folder, "--data-dir", broker.data_dir, "--json")))
    total = publisher.end()
    assert total > floors[-1]
    assert facts[-1]["stopped_ms"] > 0
    shared = [
        path for path in (pathlib.Path(facts[-1]["image"]) / "data/ledgers").iterdir() if path.stat().st_nlink > 1
    ]
    assert shared, "full ledgers of the image before are linked"

    for floor, each in ((floors[1], facts[1]), (floors[2], facts[2])):
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(each["moment_ms"] / 1000))
        at = f"{moment}.{each['moment_ms'] % 1000:03d}Z"
        target = tmp_path / f"restored-{floor}"
        magnetar("restore", folder, target, "--at", at)
        assert "intact" in magnetar("verify", target)
        restored = new_broker(target.name)
        found = numbers(restored.url)
        restored.kill()
        assert found == list(range(len(found))), "a prefix, in order"
        assert floor <= len(found) <= total
    assert numbers(broker.url) == list(range(total)), "the broker itself has lost nothing"


def test_a_broker_goes_on_when_its_backup_is_killed(new_broker, tmp_path):
    broker = new_broker()
    program = (
        "import sys, time; from magnetar.cli.backup.freezing import stopped\n"
        "with stopped(int(sys.argv[1])):\n print('stopped', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(broker.process.pid)]
    backup = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert backup.stdout.readline() == "stopped\n"
    assert "T" in pathlib.Path(f"/proc/{broker.process.pid}/stat").read_text().split()[2]
    os.kill(backup.pid, signal.SIGKILL)
    backup.wait(30)
    backup.stdout.close()
    client = quiet_client(broker.url)
    client.create_producer("t").send(b"one")
    client.close()


def test_a_refused_backup_or_restore_names_the_reason(new_broker, tmp_path):
    assert "is no data directory" in magnetar("backup", tmp_path / "i", "--data-dir", tmp_path, code=66)
    assert "has no image" in magnetar("restore", tmp_path / "i", tmp_path / "d", code=66)
    broker = new_broker()
    broker.stop()
    facts = json.loads(magnetar("backup", tmp_path / "i", "--data-dir", broker.data_dir, "--json"))
    assert facts["stopped_ms"] == 0, "no broker runs"
    assert "is not empty" in magnetar("restore", tmp_path / "i", broker.data_dir, code=75)
    assert "the oldest is" in magnetar(
        "restore", tmp_path / "i", tmp_path / "d", "--at", "2020-01-01T00:00:00Z", code=66
    )


def test_a_damaged_image_is_restored_only_on_demand(new_broker, tmp_path):
    """The disk of the images may have damaged the image since its verification."""
    broker = new_broker()
    client = quiet_client(broker.url)
    client.create_producer("numbers", batching_enabled=False).send(b"of an order" * 1000)
    client.close()
    broker.stop()
    image = pathlib.Path(json.loads(magnetar("backup", tmp_path, "--data-dir", broker.data_dir, "--json"))["image"])
    (ledger,) = (path for path in (image / "data/ledgers").iterdir() if path.stat().st_size > 11_000)
    content = ledger.read_bytes()
    ledger.write_bytes(content.replace(b"of an order", b"of an 0rder", 1))
    for option in ([], ["--until", json.loads((image / "manifest.json").read_text())["moment_ms"]]):
        problem = magnetar("restore", tmp_path, tmp_path / "back", *option, code=70)
        assert "damaged, nothing was kept" in problem
        assert ledger.name in problem
        assert "--unverified" in problem
        assert not (tmp_path / "back").exists()
    assert "--until" in magnetar("restore", tmp_path, tmp_path / "back", "--unverified", "--until", "1", code=2)
    magnetar("restore", tmp_path, tmp_path / "back", "--unverified")
    assert (tmp_path / "back/ledgers" / ledger.name).read_bytes() == ledger.read_bytes()
    ledger.write_bytes(content)
    assert "verified" in magnetar("restore", tmp_path, tmp_path / "again")


def test_one_backup_at_a_time(new_broker, tmp_path):
    broker = new_broker()
    with open(broker.data_dir / "VERSION") as version:
        fcntl.flock(version, fcntl.LOCK_EX)
        assert "another backup" in magnetar("backup", tmp_path / "i", "--data-dir", broker.data_dir, code=75)
