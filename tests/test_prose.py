"""The language of the documentation: prose stays within 100 columns."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / n for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((ROOT / "docs").rglob("*.md"))
COLUMNS = 100
_UNBREAKABLE = re.compile(r"\s*(?:[-*>] |\d+\. )*(?:!?\[[^\]]*\]\([^)]*\)|\S+)[.,;:)]*$")


def prose_lines(text):
    """The lines of a page, with their numbers, without code blocks and tables."""
    fenced = indented = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        indented = (line.startswith("    ") and (indented or not before.strip())) or (indented and not line.strip())
        before = line
        if not fenced and not indented and not line.lstrip().startswith("|"):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_stays_within_the_columns(page):
    wide = [
        f"{page.name}:{number}: {len(line)} columns"
        for number, line in prose_lines(page.read_text())
        if len(line) > COLUMNS and not _UNBREAKABLE.fullmatch(line)
    ]
    assert not wide


def test_only_prose_is_measured():
    page = "text\n```\ncode\n```\n| a | b |\n\n    code\n\n    code\n\ntext\n"
    assert [line for _, line in prose_lines(page) if line] == ["text", "```", "text"]


@pytest.mark.parametrize("line", ["- [a picture](" + "x" * 100 + ")", "https://" + "x" * 100])
def test_a_link_may_be_wide(line):
    assert _UNBREAKABLE.fullmatch(line)


def test_a_sentence_may_not_be_wide():
    assert not _UNBREAKABLE.fullmatch("a word " * 20)
