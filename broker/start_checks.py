"""Checks the files and classes that settings name, for `magnetar standalone --check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker import entry_interceptors
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.network.tls import tls_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.settings import Settings

__all__ = ["unusable_files"]


def unusable_files(settings: Settings) -> list[str]:
    """Return a sentence for each certificate, key, provider and interceptor of the settings that a start refuses."""
    checks: list[Callable[[], object]] = [
        lambda: Authenticator(settings),
        lambda: entry_interceptors.load(settings.broker_entry_metadata_interceptors),
    ]
    if settings.broker_service_port_tls is not None:
        checks.append(lambda: tls_context(settings))
    if settings.web_service_port_tls is not None:
        checks.append(lambda: tls_context(settings, web=True))
    problems = []
    for check in checks:
        try:
            check()
        except OSError as error:
            problems.append(error.strerror or str(error))
        except ValueError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))
