"""A stage repeats a few failed tests alone, and nothing else."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.stage import MOST, may_repeat

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONCE = """
import pathlib
def test_fails_once():
    mark = pathlib.Path(__file__).with_name("mark")
    passed = mark.exists()
    mark.touch()
    assert passed
def test_passes():
    pass
"""


# The stage needs two plugins; the others take most of the start of pytest.
ENV = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p pytest_randomly -p xdist.plugin"}


def stage(folder, text):
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.stage import timed; sys.exit(timed('it', ['-q', '.']))"
    return subprocess.run(
        [sys.executable, "-c", script], check=False, cwd=folder, env=ENV, capture_output=True, text=True
    )


def test_a_test_that_fails_once_is_named(tmp_path):
    done = stage(tmp_path, ONCE)
    assert done.returncode == 0
    assert "passed the second time, look at them:\n  test_it.py::test_fails_once" in done.stdout
    times = re.search(r"\nstage it: ([\d.]+) s, ([\d.]+) s of processor time\n$", done.stdout)
    assert times and all(float(each) > 0 for each in times.groups())


@pytest.mark.parametrize("text", ["def test_fails():\n    assert 0\n", "import nothing_of_this_name\n", ""])
def test_a_stage_that_fails_twice_or_in_another_way_fails(tmp_path, text):
    assert stage(tmp_path, text).returncode != 0


def test_only_a_few_failed_tests_run_again():
    assert may_repeat(1, ["a"])
    assert not may_repeat(1, [])
    assert not may_repeat(1, ["a"] * (MOST + 1))
    assert not may_repeat(2, ["a"])
    assert not may_repeat(0, [])


def test_make_test_has_each_stage_and_attacks_behind_the_others():
    """The unit tests, which compute, have a lower priority than the stages beside them; attacks have the machine alone."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", "test"]
    done = subprocess.run(command, check=True, cwd=ROOT, env=environ, capture_output=True, text=True)
    stages = re.findall(r"(?:(nice -n 10) )?\S+ -m tests\.stage (\S+)", done.stdout)
    names = [name for _, name in stages]
    assert sorted(names[:-1]) == ["blackbox", "cluster", "conformance", "conformance-wire", "pure", "spark", "unit"]
    assert names[-1] == "attack"
    assert [name for patient, name in stages if patient] == ["unit", "pure"]
