"""Each module has a test file of its name, or a line in modules.toml that names its tests."""

import functools
import pathlib
import re
import tomllib

import pytest

from tests.test_architecture import ROOT, modules, sources

TESTS = ROOT / "tests"
ROWS = {
    f"{folder}/{name}.py": where
    for folder, names in tomllib.loads((TESTS / "modules.toml").read_text()).items()
    for name, where in names.items()
}
PROCESSES = (
    *("attack", "blackbox", "cluster", "conformance", "image", "pipeline/spark", "model", "simulation"),
    *("pipeline/lake/test_tables.py", "testing/test_faults.py"),
)
"""Tests that meet a module in a whole broker, worker or command, or by its name: their imports say nothing about it."""
IMPORT = re.compile(
    r"^ *(?:from (magnetar[\w.]*|tests[\w.]*) import (\([^)]*\)|[^\n]*)|import (magnetar[\w.]*))", re.MULTILINE
)


def own_test(path):
    """The test file of the module's name."""
    return TESTS / path.parent / f"test_{path.stem.strip('_')}.py"


MODULES = [path.relative_to(ROOT) for _, path in sources() if path.name != "__init__.py"]


def test_each_module_is_tested_at_a_known_place():
    missing = [str(p) for p in MODULES if not own_test(p).exists() and str(p) not in ROWS]
    assert not missing, "name its test file after it, or add a line to tests/modules.toml"


def test_each_line_is_of_a_module_without_a_test_file_of_its_name():
    assert not [name for name in ROWS if not (ROOT / name).is_file()], "the module is gone"
    assert not [name for name in ROWS if own_test(pathlib.Path(name)).exists()], "the line says nothing more"


def test_each_line_names_a_file_of_tests():
    assert not [where for where in set(ROWS.values()) if not (TESTS / where).is_file()]
    assert not [w for w in set(ROWS.values()) if "scenarios/" not in w and not pathlib.Path(w).name.startswith("test_")]


def named(name):
    """The file of a module or package of the project or of its tests, or None."""
    path = ROOT.joinpath(*name.split(".")[1 if name.startswith("magnetar") else 0 :])
    found = [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]
    return found[0] if found else None


@functools.cache
def imported(path):
    """The files that a file imports directly."""
    names = set()
    for package, listed, plain in IMPORT.findall(path.read_text()):
        names.add(plain or package)
        names.update(f"{package}.{each.split(' ')[0]}" for each in re.findall(r"\w+(?: as \w+)?", listed))
    return {found for name in names if (found := named(name))}


@functools.cache
def reached(path):
    """All files that are loaded with a test file."""
    seen, waiting = set(), [path]
    while waiting:
        for each in imported(waiting.pop()) - seen:
            seen.add(each)
            waiting.append(each)
    return seen


@pytest.mark.parametrize("where", sorted(w for w in set(ROWS.values()) if not w.startswith(PROCESSES)))
def test_the_named_test_loads_the_module(where):
    modules_there = [ROOT / name for name, place in ROWS.items() if place == where]
    assert not [p for p in modules_there if p not in reached(TESTS / where)]


def test_the_names_of_all_modules_are_known():
    """`named` finds every file: otherwise the check above would report files that a test loads."""
    assert all(named(name) for name in modules())
