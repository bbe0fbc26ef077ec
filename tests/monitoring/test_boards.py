"""The Grafana boards: they load, their panels do not overlap, and each query reads metrics that the broker writes."""

import json
import pathlib
import shutil
import subprocess

import pytest
import yaml

from tests.monitoring.metric_names import KNOWN, used_in
from tests.monitoring.public_boards import NOT_HERE, PUBLIC

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "conf/grafana").glob("*.json"))}
VARIABLES = {"$__rate_interval": "5m"}


def panels(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board):
    return [target["expr"] for panel in panels(board) for target in panel["targets"]]


def test_there_are_boards_and_their_ids_differ():
    assert set(BOARDS) == {"broker", "topics"}
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_each_query_reads_metrics_that_exist(board):
    for query in queries(board):
        assert used_in(query) and used_in(query) <= KNOWN, query


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_panels_have_their_own_place_and_the_chosen_data_source(board):
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in panels(board))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: install the package prometheus")
def test_each_query_is_valid(tmp_path):
    rules = [
        {"record": f"r{i}", "expr": query}
        for i, query in enumerate(query for board in BOARDS.values() for query in queries(board))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    ran = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("board", PUBLIC)
def test_metrics_of_public_boards_of_pulsar_exist_or_are_listed_with_the_reason(board):
    missing = {name for name in PUBLIC[board] if name not in KNOWN}
    assert missing <= set(NOT_HERE), sorted(missing - set(NOT_HERE))


def test_the_list_of_missing_names_holds_no_name_that_exists():
    assert not [name for name in NOT_HERE if name in KNOWN]
