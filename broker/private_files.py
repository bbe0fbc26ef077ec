"""Warns of files with secrets that every user of the machine can read."""

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

OWNER_ONLY_UMASK: Final = 0o077
"""Of the broker's process: what it creates (journal, ledgers, metadata, scratch files) is its user's alone."""


def warnings_of_readable_files(settings: "Settings") -> list[str]:
    """A sentence for each key or password file of the settings that others than its owner and group can read."""
    files = {
        "tlsKeyFilePath": settings.tls_key_file_path,
        "tokenSecretKey": _file_of(settings.token_secret_key),
        "basicAuthConf": _file_of(settings.basic_auth_conf),
    }
    return [
        f"{key}: every user of this machine can read {path}; run: chmod o-rwx {path}"
        for key, path in files.items()
        if path and is_readable_by_others(Path(path))
    ]


def is_readable_by_others(path: Path) -> bool:
    """Whether the file exists and its mode lets other users read it."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):  # ValueError: a text that can be no path
        return False


def _file_of(text: str) -> str:
    """The path that the value of a setting names as file:///path; anything else may be the secret itself."""
    return unquote(urlsplit(text).path) if text.startswith("file:") else text if text.startswith("/") else ""
