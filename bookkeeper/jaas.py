"""Credentials in the form of Java's login configuration (JAAS), for bookies and ZooKeeper.

::

    BookKeeper {
      org.apache.zookeeper.server.auth.DigestLoginModule required
      username="magnetar"
      password="secret";
    };
"""

from __future__ import annotations

import pathlib
import re

from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials

__all__ = ["read_section"]

_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|/\*.*?\*/|//[^\n]*', re.DOTALL)
_SECTION = re.compile(r'\s*([\w.-]+)\s*\{((?:"(?:[^"\\\n]|\\.)*"|[^"{}])*)\}\s*;')
_OPTION = re.compile(r'([\w.-]+)\s*=\s*(?:"((?:[^"\\\n]|\\.)*)"|([^\s;"]+))')
_MOST_BYTES = 1 << 20


def read_section(path: str, section: str) -> DigestCredentials | None:
    """User and password of the section; None when the file has no such section.

    Raises ValueError for a file that cannot be read, and for a section of another kind: Kerberos among them.
    """
    try:
        with pathlib.Path(path).open(encoding="utf-8") as file:
            text = file.read(_MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from error
    body = _sections(path, text).get(section)
    if body is None:
        return None
    module = body.split(None, 1)[0] if body.split() else ""
    if module.endswith("Krb5LoginModule"):
        raise ValueError(f"{path}: section {section} asks for Kerberos, which is not supported: use DigestLoginModule")
    if not module.endswith("DigestLoginModule"):
        raise ValueError(f"{path}: section {section} has no DigestLoginModule, the one module that is supported")
    options = {name: plain or re.sub(r"\\(.)", r"\1", quoted) for name, quoted, plain in _OPTION.findall(body)}
    for name in ("username", "password"):
        if not options.get(name):
            raise ValueError(f"{path}: section {section} has no {name}")
    return DigestCredentials(options["username"], options["password"])


def _sections(path: str, text: str) -> dict[str, str]:
    text = _COMMENT.sub(lambda match: match.group() if match.group().startswith('"') else " ", text)
    found: dict[str, str] = {}
    at = 0
    while match := _SECTION.match(text, at):
        found[match.group(1)] = match.group(2)
        at = match.end()
    if text[at:].strip():
        raise ValueError(f"{path}: no login configuration: NAME {{ module required name=value; }};")
    return found
