"""The commands against a broker process: what docs/cli.md tells to type, and what must fail does so with its code."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(sys.executable).parent


@pytest.fixture
def run(new_broker, tmp_path):
    broker = new_broker()
    environ = os.environ | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        "MAGNETAR_URL": broker.url,
        "MAGNETAR_ADMIN_URL": broker.http,
    }

    def shell(text, *, code=0):
        done = subprocess.run(
            ["bash", "-eu", "-c", text], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{text}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    return shell


@pytest.mark.timeout(240)  # forty processes, one after the other
def test_the_page_can_be_typed(run, tmp_path):
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "docs/cli.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 5
    said = [run(text) for text in blocks]
    for line in ("first order", "second order", "third order", "fourth order"):
        assert said[0].count(line) >= 2, f"{line} was tailed and consumed"
    exported = [json.loads(line) for line in (tmp_path / "orders.jsonl").read_text().splitlines()]
    assert sorted(each["payload"] for each in exported) == [
        "first order",
        "fourth order",
        "second order",
        "third order",
    ]
    assert (tmp_path / "orders.parquet").read_bytes()[:4] == b"PAR1"
    assert "public/default" in said[0]
    assert {each["check"]: each["verdict"] for each in json.loads(said[2])}["service port"] == "ok"
    assert (tmp_path / "magnetar.fish").read_text()
    assert '"retentionTimeInMinutes" : 1440' in said[4]
    assert said[4].count("----- got message -----") == 4


def test_failures_have_their_codes_and_say_what_to_do(run):
    assert "not found" in run("magnetar topics show nosuch", code=66)
    assert "Did you mean 'list'" in run("magnetar topics lst", code=2)
    assert "magnetar context" in run("magnetar context use nosuch", code=66)
    assert "is the broker up" in run(
        "magnetar --version >/dev/null; magnetar topics list --admin-url http://127.0.0.1:1", code=69
    )
    assert "Reason: " in run("magnetar admin topics stats nosuch", code=1)
    run("magnetar produce t a && magnetar consume t -s s --from earliest -n 1 && magnetar produce t b c")
    run("magnetar lag --above 1", code=1)
    run("magnetar lag --above 2")
    assert "no such variable" in run("magnetar topics list --token env:NOSUCH_TOKEN", code=78)
    assert "is no namespace" in run("magnetar topics list public", code=2)
