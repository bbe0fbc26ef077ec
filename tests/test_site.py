"""The documentation builds as a site: every page has its place, every link and heading exists, nothing comes from other
hosts.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADED = re.compile(r"<(?:script|img|iframe|link)[^>]+?(?:src|href)=\"?((?:https?:)?//[^\" >]+)")


@pytest.mark.timeout(180)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    foreign = {found for page in pages for found in LOADED.findall(page.read_text())}
    assert not foreign
    assert (tmp_path / "site/files/conf/alerts.yml.txt").exists()
