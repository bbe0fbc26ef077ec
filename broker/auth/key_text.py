"""Keys and files named in settings: `data:;base64,...`, `file:///path`, `env:NAME`, a path, or the content itself."""

import base64
import binascii
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit


def read_bytes(text: str, setting: str) -> bytes:
    """The bytes that a setting points to.

    Raises: ValueError that names the setting when the file or variable is missing or the data is no base64.
    """
    if text.startswith("data:"):
        kind, comma, data = text.partition(",")
        if not comma:
            raise ValueError(f"{setting}: data: needs a comma before its content")
        return decode_base64(data, setting) if kind.endswith(";base64") else unquote(data).encode()
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        if name not in os.environ:
            raise ValueError(f"{setting}: environment variable {name} is not set")
        return os.environ[name].encode()
    path = Path(unquote(urlsplit(text).path)) if text.startswith("file:") else Path(text)
    if names_file(text):
        try:
            return path.read_bytes()
        except OSError as e:
            raise ValueError(f"{setting}: {path}: {e.strerror}") from e
    return text.encode()


def names_file(text: str) -> bool:
    """Whether the setting is a URL of a file, the path of an existing file, or an absolute path that leads into an
    existing directory: as content the path of a missing file would be a key, and a path is no secret. Content may be
    longer than any path.
    """
    if text.startswith("file:") or os.path.isfile(text):  # noqa: PTH113 - Path.is_file raises for a long text
        return True
    first = text.split("/", 2)[1] if text.startswith("/") else ""
    return bool(first) and os.path.isdir(f"/{first}")  # noqa: PTH112 - the same


def decode_base64(text: str | bytes, setting: str) -> bytes:
    """Base64 in either alphabet, white space ignored; raises ValueError that names the setting."""
    raw = text.encode() if isinstance(text, str) else text
    compact = b"".join(raw.split()).replace(b"-", b"+").replace(b"_", b"/")
    try:
        return base64.b64decode(compact + b"=" * (-len(compact) % 4), validate=True)
    except binascii.Error as e:
        raise ValueError(f"{setting}: not base64") from e
