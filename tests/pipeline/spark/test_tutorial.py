"""docs/pipeline/tutorial.md runs as it stands, against a broker of its own."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from magnetar.pytest_plugin import BrokerProcess

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "pipeline" / "tutorial.md"


@pytest.fixture
def broker(tmp_path):
    broker = BrokerProcess(tmp_path / "data", {})
    yield broker
    broker.stop()


def test_every_block_of_the_tutorial_runs(spark, broker, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = (
        PAGE.read_text()
        .replace("pulsar://127.0.0.1:6650", broker.url)
        .replace("http://127.0.0.1:8080", broker.http_url)
    )
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks].count("sh") == 2
    namespace, background = {"__name__": "tutorial"}, []
    environment = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
    try:
        for language, block in blocks:
            if language == "python":
                exec(compile(block, str(PAGE), "exec"), namespace)
                continue
            command = ["bash", "-ec", f"exec {block.strip().removesuffix('&')}"]
            process = subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            background.append(process)
            if not block.strip().endswith("&"):
                out, err = process.communicate(timeout=120)
                assert process.returncode == 0, err
                assert "intact: 1 topics" in out
    finally:
        for process in background:
            process.terminate()
            process.communicate(timeout=60)
    assert [process.returncode for process in background] == [0, 0], "SIGTERM ends a stream cleanly"
    assert (folder / "orders.png").read_bytes().startswith(b"\x89PNG")
