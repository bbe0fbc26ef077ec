"""Contexts: named sets of broker addresses and credentials that replace options on each command line.

The file is `$XDG_CONFIG_HOME/magnetar/contexts.json` (`~/.config` without the variable), readable by its owner alone:

    {"current": "prod", "contexts": {"prod": {"service_url": "pulsar+ssl://mq.example.org:6651",
                                              "admin_url": "https://mq.example.org:8443",
                                              "token": "file:/home/me/admin.token"}}}

A token should be a reference, `file:PATH` or `env:NAME`; the file may also contain a token, so its mode is 0600.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.errors import CommandLineError, ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWNER_ONLY: Final = 0o600


@dataclass(frozen=True, slots=True)
class Context:
    """One named broker. A value of None stands for the default of the command line."""

    service_url: str | None = None
    admin_url: str | None = None
    token: str | None = None
    basic: str | None = None
    tls_trust_certs: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_allow_insecure: bool = False
    description: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the values that differ from the defaults."""
        default = Context()
        return {key: value for key, value in asdict(self).items() if value != getattr(default, key)}

    def shown(self) -> dict[str, Any]:
        """Return the values without secrets: stars replace a token; a reference to a token stays."""
        shown = self.to_json()
        if self.token is not None and not self.token.startswith(("file:", "env:")):
            shown["token"] = "(a token)"  # noqa: S105 - says that there is one
        if self.basic is not None:
            shown["basic"] = self.basic.partition(":")[0] + ":(a password)"
        return shown


@dataclass(slots=True)
class ContextFile:
    """The named brokers of one user."""

    path: Path
    contexts: dict[str, Context] = field(default_factory=dict)
    current: str | None = None

    @staticmethod
    def load(environ: Mapping[str, str]) -> ContextFile:
        """Read the contexts of the file; an absent file has no contexts. Raises: ConfigurationError."""
        path = context_path(environ)
        try:
            return _parsed(path, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ContextFile(path)
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error

    def save(self) -> None:
        """Replace the file atomically. Raises: ConfigurationError."""
        body = {"current": self.current, "contexts": {name: each.to_json() for name, each in self.contexts.items()}}
        new = self.path.with_suffix(".new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, _OWNER_ONLY)
                file.write(json.dumps(body, indent=1) + "\n")
            new.replace(self.path)
        except OSError as error:
            raise ConfigurationError(f"cannot write {self.path}: {error.strerror}") from error

    def get(self, name: str) -> Context:
        """Raises: NotFoundError."""
        found = self.contexts.get(name)
        if found is None:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFoundError(f"there is no context {name!r}; known: {known}. `magnetar context add` makes one")
        return found

    def put(self, name: str, context: Context) -> None:
        """Add or replace a context; the first becomes the current context. Raises: CommandLineError."""
        if not _NAME.fullmatch(name):
            raise CommandLineError(f"{name!r} is no name of a context: letters, digits, dots, dashes, underscores")
        self.contexts[name] = context
        if self.current is None:
            self.current = name

    def remove(self, name: str) -> None:
        """Raises: NotFoundError."""
        self.get(name)
        del self.contexts[name]
        if self.current == name:
            self.current = None

    def select(self, name: str) -> None:
        """Make the context the current context. Raises: NotFoundError."""
        self.get(name)
        self.current = name


def context_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    base = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".config")
    return Path(base) / "magnetar" / "contexts.json"


def _parsed(path: Path, text: str) -> ContextFile:
    known = {each.name for each in fields(Context)}
    try:
        body = json.loads(text)
        contexts = {
            str(name): Context(**{key: value for key, value in each.items() if key in known})
            for name, each in body.get("contexts", {}).items()
        }
        current = body.get("current")
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigurationError(f"{path} is damaged ({error}): correct or delete it") from error
    return ContextFile(path, contexts, current if current in contexts else None)
