"""The locked versions (`make lock`) are such as pyproject.toml allows."""

import pathlib
import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,.-]+\])?==([\w.]+)", re.MULTILINE)


def locked(name):
    text = (ROOT / "requirements" / name).read_text()
    assert "://" not in text.replace("https://docs.", ""), "a lock names no host"
    found: dict[str, set[str]] = {}
    for package, version in PIN.findall(text):
        found.setdefault(canonicalize_name(package), set()).add(version)
    return found


def wanted(*extras):
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == "magnetar":
            yield from wanted(*requirement.extras)
        else:
            yield requirement


@pytest.mark.parametrize(("name", "extras"), [("broker.txt", ()), ("ci.txt", ("test", "dev"))])
def test_the_lock_is_of_this_project(name, extras):
    versions = locked(name)
    for requirement in wanted(*extras):
        found = versions.get(canonicalize_name(requirement.name), set())
        assert found, f"{requirement.name} is not in requirements/{name}: run `make lock`"
        assert all(requirement.specifier.contains(v) for v in found), f"{requirement}: run `make lock`"


def test_both_locks_name_the_same_versions():
    tests = locked("ci.txt")
    assert {name: tests.get(name) for name in locked("broker.txt")} == locked("broker.txt")


def test_every_dependency_has_an_upper_bound():
    """A new major version is a decision: users install without the lock."""
    found = wanted(*PROJECT["optional-dependencies"])
    assert not [str(each) for each in found if not any(s.operator in ("<", "<=", "==", "~=") for s in each.specifier)]
