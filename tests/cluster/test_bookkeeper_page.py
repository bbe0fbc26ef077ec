"""The programs of docs/bookkeeper.md run as they stand, but for the address."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = [
    each
    for each in re.findall(r"```python\n(.*?)```", (ROOT / "docs/bookkeeper.md").read_text(), re.DOTALL)
    if "asyncio.run(" in each
]
PRINTS = ["1000 ", "the old writer is out", "there is one already"]


@pytest.mark.parametrize(("program", "prints"), list(zip(PROGRAMS, PRINTS, strict=True)), ids=PRINTS)
def test_programs_of_the_page(cluster, tmp_path, program, prints):
    assert "127.0.0.1:2181" in program
    script = tmp_path / "program.py"
    script.write_text(program.replace("127.0.0.1:2181", cluster.zookeeper))
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert prints in done.stdout
