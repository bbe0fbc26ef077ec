"""The environment of the tests: the variables of a user's shell change no test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_REMOVED: Final = (
    "MAGNETAR_URL",
    "MAGNETAR_ADMIN_URL",
    "MAGNETAR_TOKEN",
    "MAGNETAR_TLS_TRUST_CERTS",
    "MAGNETAR_TLS_CERT",
    "MAGNETAR_TLS_KEY",
    "MAGNETAR_CONTEXT",
    "PULSAR_CLIENT_CONF",
    "COLUMNS",  # the width of help texts
    "LANGUAGE",
    "PYTHONIOENCODING",
    "PYTHONWARNINGS",  # libraries of the broker warn of their own future
    "MALLOC_ARENA_MAX",
)
_REMOVED_PREFIXES: Final = ("PULSAR_PREFIX_", "OTEL_")
_THIS_MACHINE: Final = ("127.0.0.1", "localhost", "::1", "[::1]")


def isolate(environ: MutableMapping[str, str]) -> None:
    """Remove settings of commands, of the broker and of Python; keep requests to this machine away from proxies; let
    programs use a locale that every system has: shells warn of a locale that is not installed.
    """
    for name in [each for each in environ if each in _REMOVED or each.startswith(_REMOVED_PREFIXES)]:
        del environ[name]
    own = environ.get("no_proxy") or environ.get("NO_PROXY")
    environ["no_proxy"] = environ["NO_PROXY"] = ",".join(filter(None, (own, *_THIS_MACHINE)))
    environ["LC_ALL"] = "C.UTF-8"
