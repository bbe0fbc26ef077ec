"""Each compiled helper of setup.py is built anew after a change, has the sanitizers, and is expected of a package."""

from __future__ import annotations

import fnmatch
import re

import pytest

from tests.model.call_chains import ROOT

SOURCES = re.findall(r'\["magnetar/([\w/]+)\.c"\]', (ROOT / "setup.py").read_text())


def test_setup_names_the_sources():
    assert len(SOURCES) == len(set(SOURCES)) > 8
    assert set(SOURCES) == {
        str(path.relative_to(ROOT))[:-2]
        for path in ROOT.glob("*/**/_*.c")
        if not {".venv", "build", "tests", "bench"} & set(path.relative_to(ROOT).parts)
    }


@pytest.mark.parametrize("source", SOURCES)
def test_each_list_has_the_helper(source: str):
    assert (ROOT / f"{source}.pyi").exists() or source == "protocol/_speedups", "the types of its functions"
    patterns = re.search(r"requirements/broker.txt \$\(wildcard (.*)\)", (ROOT / "Makefile").read_text())
    assert patterns is not None
    assert any(fnmatch.fnmatch(f"{source}.c", pattern) for pattern in patterns.group(1).split()), "Makefile"
    assert re.search(rf"\b{source}\b", (ROOT / "tests" / "fuzz" / "asan.sh").read_text()), "sanitizers"
    name = "magnetar." + source.replace("/", ".")
    assert f'"{name}"' in (ROOT / ".ci" / "installed.py").read_text(), "package"
