"""Moments that images cover, and the errors for all others."""

import json
import os

import pytest

from magnetar.broker.policies.stored_topic_records import topic_policies_path
from magnetar.broker.schemas.registry import _path
from magnetar.broker.topics.catalog import partitioned_path
from magnetar.cli.backup.images import images
from magnetar.cli.backup.moments import covered, leading_nodes, restore_moment, schema_nodes, span_of, time_text
from magnetar.cli.errors import ConflictError, NotFoundError
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.embedded.store_version import encode_version

ONE, OTHER = b"1" * 16, b"2" * 16


def folder_of(path, *stores):
    """Images a second apart, the first at 1000 ms, each of the store given; None: its VERSION cannot be read."""
    for number, store in enumerate(stores, 1):
        data = path / f"image-{number}" / "data"
        data.mkdir(parents=True)
        data.joinpath("VERSION").write_bytes(encode_version(store) if store is not None else b"?")
        facts = {"format": 1, "moment_ms": number * 1000, "ledgers": {}}
        data.with_name("manifest.json").write_text(json.dumps(facts))
    return path


def names(span):
    return [path.name for path, _ in span]


def test_moments_from_one_image_to_the_next_are_covered(tmp_path):
    folder = folder_of(tmp_path, ONE, ONE, OTHER, OTHER, None, None)
    assert covered(images(folder)) == [1000, 1000, 3000, 3000, 5000, 6000]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("../../image-1/data/VERSION")])
def test_a_version_that_is_a_fifo_or_a_link_names_no_store(tmp_path, make):
    """A FIFO held up the list of moments for ever."""
    folder = folder_of(tmp_path, ONE, ONE)
    version = folder / "image-2" / "data" / "VERSION"
    version.unlink()
    make(version)
    assert covered(images(folder)) == [1000, 2000]


def test_the_images_around_a_moment(tmp_path):
    folder = folder_of(tmp_path, ONE, ONE, ONE)
    assert names(span_of(folder, 1001)) == ["image-1", "image-2"]
    assert names(span_of(folder, 2000)) == ["image-2", "image-2"]
    assert names(span_of(folder, 2999)) == ["image-2", "image-3"]


@pytest.mark.parametrize(
    ("moment", "stores", "error", "said"),
    [
        (1, [], NotFoundError, "has no image"),
        (999, [ONE, ONE], NotFoundError, "the oldest moment that the images cover is 1970-01-01T00:00:01.000Z"),
        (2001, [ONE, ONE], NotFoundError, "the newest moment that the images cover is 1970-01-01T00:00:02.000Z"),
        (1500, [ONE, OTHER], ConflictError, "of different stores"),
    ],
)
def test_a_moment_that_is_not_covered_is_refused(tmp_path, moment, stores, error, said):
    with pytest.raises(error, match=said):
        span_of(folder_of(tmp_path, *stores), moment)


def test_a_directory_in_use_is_left_alone(tmp_path):
    span = span_of(folder_of(tmp_path / "images", ONE, ONE), 1500)
    kept = tmp_path / "data" / "file"
    kept.parent.mkdir()
    kept.touch()
    with pytest.raises(ConflictError, match="is not empty"):
        restore_moment(span, kept.parent, 1500, lambda _: None)
    assert kept.exists()


def test_times_are_as_the_options_take_them():
    assert time_text(1_767_323_045_007) == "2026-01-02T03:04:05.007Z"


@pytest.mark.parametrize("topic", ["persistent://t/n/orders", "persistent://t/n/a b%ü:c-partition-3"])
def test_paths_are_the_brokers(topic):
    name = TopicName.parse(topic)
    base = name.base
    assert schema_nodes(name.persistence_name) == [_path(name)]
    assert leading_nodes(name.persistence_name) == [
        "/admin/policies/t",
        "/admin/policies/t/n",
        partitioned_path(base),
        topic_policies_path(str(base)),
    ]


def test_another_managed_ledger_has_none():
    assert [*schema_nodes("x"), *leading_nodes("x")] == []
