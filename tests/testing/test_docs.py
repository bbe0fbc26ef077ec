"""The programs of docs/fault-kit.md run as they stand. Java and Go: `make fault-kit-languages`."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/fault-kit.md").read_text()
ENV = os.environ | {"PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}
LANGUAGES = pytest.mark.skipif(not os.environ.get("MAGNETAR_LANGUAGES"), reason="make fault-kit-languages")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def run(arguments, where, timeout, **env):
    done = subprocess.run(
        arguments, cwd=where, env=ENV | env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.mark.timeout(120)
def test_the_pytest_program_runs(tmp_path):
    (tmp_path / "test_page.py").write_text(blocks("python")[0])
    plugins = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:randomly"]
    run([sys.executable, "-m", "pytest", "-q", *plugins, "test_page.py"], tmp_path, 110)


@pytest.mark.timeout(120)
def test_the_unittest_program_runs(tmp_path):
    (tmp_path / "page.py").write_text(blocks("python")[1])
    run([sys.executable, "page.py"], tmp_path, 110)


@LANGUAGES
@pytest.mark.timeout(900)
def test_the_go_program_runs(tmp_path):
    if not shutil.which("go"):
        pytest.skip("no Go here")
    (tmp_path / "orders_test.go").write_text(blocks("go")[0])
    run(["go", "mod", "init", "orders"], tmp_path, 60)
    run(["go", "mod", "tidy"], tmp_path, 400)
    run(["go", "test", "-count=1", "./..."], tmp_path, 400)


@LANGUAGES
@pytest.mark.timeout(900)
def test_the_java_program_runs(tmp_path):
    if not shutil.which("mvn"):
        pytest.skip("no Maven here")
    tests = tmp_path / "src/test/java"
    tests.mkdir(parents=True)
    (tests / "OrdersTest.java").write_text(blocks("java")[0])
    shutil.copy(pathlib.Path(__file__).with_name("pom.xml"), tmp_path / "pom.xml")
    run(["mvn", "-q", "-B", "test"], tmp_path, 800)
