"""Images: a journal of any size goes through a few MiB, and a place that cannot be replaced is refused."""

import os
import time
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from magnetar.cli.backup import images as images_module
from magnetar.cli.backup.images import (
    _locked,
    hand_over,
    images,
    remove_abandoned,
    restore_image,
    take,
    verify_directory,
    write_image,
)
from magnetar.cli.backup.moments import restore_moment
from magnetar.cli.errors import BrokerFailedError, CommandLineError, ConflictError, DeniedError

JOURNAL_BYTES = 64 << 20
END_BYTES = 300_000
MOST_BYTES = 16 << 20


def data_directory(path):
    """A stopped broker's, with a large journal."""
    for name in ("journal", "metadata", "ledgers"):
        (path / name).mkdir(parents=True)
    (path / "VERSION").write_bytes(b"1\n")
    (path / "LOCK").write_bytes(b"")
    with (path / "journal" / "1.journal").open("wb") as file:
        file.write(bytes(JOURNAL_BYTES - END_BYTES) + b"end" * (END_BYTES // 3))
    return path


def test_a_large_journal_is_copied_in_pieces_without_its_free_parts(tmp_path):
    data = data_directory(tmp_path / "data")
    tracemalloc.start()
    try:
        with ExitStack() as stack:
            taken = take(data, tmp_path / "image", {}, stack)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES
    assert taken.copied["VERSION"] == 2
    assert END_BYTES <= taken.copied["journal/1.journal"] < MOST_BYTES
    copied = tmp_path / "image" / "journal" / "1.journal"
    assert copied.stat().st_size == JOURNAL_BYTES
    assert copied.stat().st_blocks * 512 < MOST_BYTES
    assert copied.stat().st_mode & 0o077 == 0
    assert copied.read_bytes() == (data / "journal" / "1.journal").read_bytes()


def test_a_mount_point_is_refused_before_anything_is_copied(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path == target)
    data = data_directory(tmp_path / "image" / "data")
    for restore in (
        lambda: restore_image(data.parent, target, lambda _bytes: None),
        lambda: restore_moment(((data.parent, {}), (tmp_path / "behind", {})), target, 1, lambda _bytes: None),
    ):
        with pytest.raises(ConflictError, match="a mount point"):
            restore()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image", "target"]


@pytest.mark.parametrize("place", ["data", "data/images", "data/ledgers/images", "linked/images", "journal/images"])
def test_a_folder_of_images_in_the_data_directory_is_refused(tmp_path, place):
    data = data_directory(tmp_path / "data")
    (data / "journal").rename(tmp_path / "journal")
    (data / "journal").symlink_to(tmp_path / "journal")
    (tmp_path / "linked").symlink_to(data)
    with pytest.raises(CommandLineError, match="lies in the data directory"):
        write_image(data, tmp_path / place, lambda _bytes: None)
    assert not list(tmp_path.rglob("images"))


def image(path):
    for name in ("journal", "ledgers"):
        (path / "data" / name).mkdir(parents=True)
        (path / "data" / name / "1").write_bytes(name.encode())
    return path


def test_an_image_is_restored(tmp_path):
    copied = []
    restore_image(image(tmp_path / "image"), tmp_path / "target", copied.append)
    found = {str(path.relative_to(tmp_path / "target")): path for path in (tmp_path / "target").rglob("*")}
    assert sorted(found) == ["journal", "journal/1", "ledgers", "ledgers/1"]
    assert found["journal/1"].read_bytes() == b"journal"
    assert found["ledgers/1"].stat().st_mode & 0o777 == 0o600
    assert found["ledgers"].stat().st_mode & 0o777 == 0o700
    assert sum(copied) == 14


@pytest.mark.parametrize(("caller", "owner", "handed"), [(0, 7, 5), (0, 0, 0), (7, 9, 0)])
def test_root_hands_a_directory_over_to_the_owner_itself_last(tmp_path, monkeypatch, caller, owner, handed):
    """`magnetar restore` by root replaced the empty directory of the broker's user by one of root's own."""
    made = image(tmp_path) / "data"
    changed = []
    monkeypatch.setattr(os, "geteuid", lambda: caller)
    monkeypatch.setattr(os, "lchown", lambda path, *ids: changed.append((Path(path), *ids)))
    hand_over(made, SimpleNamespace(stat=lambda: SimpleNamespace(st_uid=owner, st_gid=8)))
    assert len(changed) == handed
    assert {each[1:] for each in changed} <= {(owner, 8)}
    assert not handed or changed[-1][0] == made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
@pytest.mark.parametrize("is_there", [True, False])
def test_root_restores_for_the_owner_of_the_empty_directory_or_of_the_image(tmp_path, is_there):
    made, target = image(tmp_path / "image"), tmp_path / "target"
    os.chown(made, 1234, 1235)
    if is_there:
        target.mkdir()
        os.chown(target, 1236, 1237)
    restore_image(made, target, lambda _bytes: None)
    owners = {(each.stat().st_uid, each.stat().st_gid) for each in (target, *target.rglob("*"))}
    assert owners == {(1236, 1237) if is_there else (1234, 1235)}


@pytest.mark.parametrize("name", ["journal/2", "2"])
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("../../../secret"), lambda path: path.symlink_to("/")]
)
def test_a_restore_follows_no_links_and_waits_for_no_fifo(tmp_path, name, make):
    (tmp_path / "secret").write_bytes(b"of another user")
    make(image(tmp_path / "image") / "data" / name)
    with pytest.raises((DeniedError, OSError)):
        restore_image(tmp_path / "image", tmp_path / "target", lambda _bytes: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image", "secret"]


def test_a_restore_into_the_image_is_refused(tmp_path):
    for place in ("data/target", "target"):
        with pytest.raises(CommandLineError, match="lies in the image"):
            restore_image(image(tmp_path / place[:4]), tmp_path / place[:4] / place, lambda _bytes: None)


def test_a_manifest_that_is_a_fifo_or_a_link_is_no_image(tmp_path):
    for name in ("fifo", "link"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "fifo" / "manifest.json")
    (tmp_path / "facts").write_text('{"format": 1, "moment_ms": 1, "ledgers": {}}')
    (tmp_path / "link" / "manifest.json").symlink_to("../facts")
    assert images(tmp_path) == []


def test_unfinished_images_of_killed_backups_are_removed(tmp_path):
    for name in (".partial-1", ".partial-2", ".partial-3", "20261122T030405.678Z"):
        (tmp_path / name / "data").mkdir(parents=True)
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / ".partial-3")
    at_work = _locked(tmp_path / ".partial-2")
    remove_abandoned(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".partial-2", ".partial-3", "20261122T030405.678Z"}
    os.close(at_work)
    remove_abandoned(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {".partial-3", "20261122T030405.678Z"}


def test_a_folder_named_like_the_package_in_the_working_directory_hides_no_verification(tmp_path, monkeypatch):
    """A backup out of /var/lib or beside a checkout called every copy damaged."""
    (tmp_path / "magnetar").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BrokerFailedError, match=r"cannot be verified.* is not a data directory"):
        verify_directory(tmp_path / "none")


@pytest.fixture
def few_descriptors(monkeypatch):
    """A process that may open 70 files, 6 of them ledger files."""
    monkeypatch.setattr("magnetar.cli.backup.images.resource.getrlimit", lambda _kind: (70, 70))


def write_ledgers(data, numbers, written_s):
    for number in numbers:
        path = data / "ledgers" / f"{number}.ledger"
        path.write_bytes(b"%d" % number * 10)
        os.utime(path, (written_s, written_s))


def test_a_backup_of_more_new_ledgers_than_descriptors(tmp_path, monkeypatch, few_descriptors):
    """A first backup of more than 20,000 ledgers needed as many descriptors, or failed."""
    data, ledgers = data_directory(tmp_path / "data"), tmp_path / "data" / "ledgers"
    write_ledgers(data, range(20), time.time() - 60)
    write_ledgers(data, range(20, 23), time.time())
    copy_small = images_module._copy_small

    def changed(*args):
        """At the instant a ledger has become longer, another has been deleted."""
        copied = tmp_path / "image" / "ledgers"
        assert sorted(path.name for path in copied.iterdir()) == sorted(f"{number}.ledger" for number in range(20))
        with (ledgers / "3.ledger").open("ab") as file:
            file.write(b"more")
        (ledgers / "4.ledger").unlink()
        copy_small(*args)

    monkeypatch.setattr(images_module, "_copy_small", changed)
    with ExitStack() as stack:
        taken = take(data, tmp_path / "image", {}, stack)
        opened = [name for name, (descriptor, _) in taken.ledgers.items() if descriptor >= 0]
        written = images_module._write(taken, tmp_path / "image", None, lambda _size: None)
    assert opened == ["20.ledger", "21.ledger", "22.ledger", "3.ledger"]
    found = {path.name: path.read_bytes() for path in (tmp_path / "image" / "ledgers").iterdir()}
    assert found == {path.name: path.read_bytes() for path in ledgers.iterdir()}
    assert written >= sum(map(len, found.values()))


def test_unchanged_ledgers_need_no_descriptors(tmp_path, few_descriptors):
    """Unchanged ledgers counted, so that each later backup of more ledgers than descriptors failed."""
    data = data_directory(tmp_path / "data")
    write_ledgers(data, range(100), time.time() - 60)
    known = {path.name: images_module.identity(path.stat()) for path in (data / "ledgers").iterdir()}
    write_ledgers(data, [100], time.time())
    with ExitStack() as stack:
        taken = take(data, tmp_path / "image", known, stack)
    assert len(taken.ledgers) == 101


def test_more_ledgers_that_change_than_descriptors_are_refused(tmp_path, few_descriptors):
    data = data_directory(tmp_path / "data")
    write_ledgers(data, range(7), time.time())
    with ExitStack() as stack, pytest.raises(ConflictError, match="more than 6 ledger files"):
        take(data, tmp_path / "image", {}, stack)
