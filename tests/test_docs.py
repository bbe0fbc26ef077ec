"""The documents name existing files and settings, and the first page's program runs."""

import pathlib
import re
import subprocess
import sys

import pytest

from magnetar.broker.settings_loader import load_settings
from tests.test_architecture import BROKER_FLOORS

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PATH = re.compile(
    r"`((?:broker|protocol|storage|delayed|converters|pipeline|tests|conf|docs|bench)/[\w/.-]+\.(?:py|md|toml|conf|sh|c))`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page):
    text = page.read_text()
    for target in LINK.findall(text):
        assert (page.parent / target).exists(), f"dead link {target}"
    for path in PATH.findall(text):
        assert (ROOT / path).exists(), f"no such file: {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_into_pages_lead_to_a_heading(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        headings = re.findall(r"^#+ (.*)$", (page.parent / target if target else page).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
        assert anchor in slugs, f"dead link {target}#{anchor}"


def test_make_targets_named_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for words in re.findall(r"`make ((?:[a-z-]+ ?)+)", page.read_text()):
            assert set(words.split()) <= targets, f"{page.name}: make {words}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_settings_of_brokers_in_tests_are_taken(page):
    for arguments in re.findall(r"magnetar_broker_factory\(([\w=, ]+)\)", page.read_text()):
        load_settings(None, {}, arguments.split(", "), pytest.fail)


def test_the_first_program_of_the_readme_runs(magnetar_broker):
    program = re.search(r"```python\n(import pulsar\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    program = program.replace("pulsar://127.0.0.1:6650", magnetar_broker.url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert "the receipt means: on the disk" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_package_is_installed_from_a_checkout(page):
    """No package registry has this name: `pip install magnetar` fails, or installs another project."""
    assert not re.findall(r"pip install [^\n`]*?(?<![\w/.])magnetar\b(?!/)", page.read_text())


def test_errors_install_the_package_from_a_checkout():
    """The same for the texts of the program."""
    modules = [path for room in (ROOT / "magnetar").iterdir() if room.is_dir() for path in room.resolve().rglob("*.py")]
    named = [path for path in modules if re.search(r"pip install '?magnetar\b", path.read_text())]
    assert named == []
    assert len(modules) > 500


def test_the_table_of_the_broker_names_each_part():
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index("### Inside the broker") : page.index("Imitations of Java live")]
    assert not set(BROKER_FLOORS) - set(re.findall(r"`([a-z_]+)/?`", table))
