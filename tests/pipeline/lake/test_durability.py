"""A loss of power at any moment leaves finished commits in a table, and never a half of a commit."""

import pytest

from magnetar.pipeline.lake.committer import FORMATS, open_table
from magnetar.pipeline.lake.errors import LakeError
from tests.pipeline.lake.lake_rows import SCHEMA, TOPIC, append
from tests.pipeline.lake.power_loss import Power
from tests.pipeline.lake.test_tables import indexes

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning:pyiceberg")


def different(images):
    """Without repetitions: most syncs change nothing."""
    return [image for n, image in enumerate(images) if image not in images[:n]]


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_loss_of_power_at_any_moment_of_a_commit(format_name, tmp_path, monkeypatch):
    power = Power(tmp_path / "orders", monkeypatch)

    def end():
        return open_table(format_name, power.root).committed([TOPIC]).get(TOPIC, 0)

    append(open_table(format_name, power.root), 0, 10)
    power.lost.clear()
    append(open_table(format_name, power.root), 10, 15)
    during = list(power.lost)
    power.lost.clear()
    power.look()
    monkeypatch.undo()
    assert len(during) > 6, "the commit syncs its files"
    ends = set()
    for image in different(during):
        power.put_back(image)
        ends.add(end())
        assert indexes(format_name, open_table(format_name, power.root)) == list(range(end()))
    assert ends == {10, 15}
    for image in different(power.lost):
        power.put_back(image)
        assert end() == 15, "a finished commit stays"
        assert indexes(format_name, open_table(format_name, power.root)) == list(range(15))
    power.put_back(during[len(during) // 2])
    table = open_table(format_name, power.root)
    append(table, end(), 20, prefix="again")
    assert indexes(format_name, table) == list(range(20)), "the next run goes on"


@pytest.mark.parametrize("format_name", ["delta", "iceberg"])
def test_a_loss_of_power_after_a_new_column(format_name, tmp_path, monkeypatch):
    power = Power(tmp_path / "orders", monkeypatch)
    append(open_table(format_name, power.root), 0, 10)
    wider = SCHEMA.append(SCHEMA.field("__index").with_name("amount"))
    open_table(format_name, power.root).prepare(wider)
    power.lost.clear()
    power.look()
    monkeypatch.undo()
    for image in power.lost:
        power.put_back(image)
        assert "amount" in open_table(format_name, power.root).prepare(SCHEMA).names
        assert indexes(format_name, open_table(format_name, power.root)) == list(range(10))


def test_an_incomplete_commit_of_delta_names_the_remedy(tmp_path):
    table = open_table("delta", str(tmp_path / "t"))
    append(table, 0, 10)
    append(table, 10, 20)
    newest = max((tmp_path / "t" / "_delta_log").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:50])
    again = open_table("delta", str(tmp_path / "t"))
    with pytest.raises(LakeError, match=rf"{newest.name} is incomplete.*remove that file"):
        again.committed([TOPIC])
    newest.unlink()
    assert again.committed([TOPIC]) == {TOPIC: 10}
