"""Hooks of mkdocs: links to files beside docs/ lead to copies of them in the site."""

import pathlib
import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(\]\()((?:\.\./)+[^)#]+)")
_TREE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+tests/[\w/]*\)")
_COPIES = "files"


def _outside(page_path: str, target: str) -> str | None:
    """The path from the project's root of a link that leaves docs/; None for a link within."""
    found = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page_path), target))
    return None if found.startswith("docs/") or not (_ROOT / found).is_file() else found


def on_files(files: Files, config: Any) -> Files:
    """Add each file outside docs/ that a page links to."""
    wanted = {
        outside
        for page in files.documentation_pages()
        for _, target in _LINK.findall(page.content_string)
        if (outside := _outside(page.src_uri, target))
    }
    for path in sorted(wanted):
        files.append(File.generated(config, f"{_COPIES}/{path}.txt", content=(_ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point the links at the copies; folders of the source tree lose their link."""

    def moved(found: re.Match[str]) -> str:
        outside = _outside(page.file.src_uri, found[2])
        if outside is None:
            return found[0]
        up = posixpath.relpath(_COPIES, posixpath.dirname(page.file.src_uri) or ".")
        return f"{found[1]}{up}/{outside}.txt"

    return _LINK.sub(moved, _TREE.sub(r"\1", markdown))
