"""Checks the files, classes, data directory and listening address that settings name, for
`magnetar standalone --check`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from magnetar.broker import entry_interceptors
from magnetar.broker.advertised import AdvertisedAddresses
from magnetar.broker.auth.authenticator import Authenticator
from magnetar.broker.foreign_entries.converting_service import check_converters
from magnetar.broker.network.bind import bind, told_by_setting
from magnetar.broker.network.tls import tls_context
from magnetar.storage.embedded.access import obstacles

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.settings import Settings

__all__ = ["print_addresses", "problems_of_a_start"]

_FIRST_FREE_PORT: Final = 1024


def print_addresses(settings: Settings) -> None:
    """Print the addresses at which clients reach a broker with these settings; a free port of the system is 0. An
    output that takes no line does not matter: the exit code is the result of a check.
    """
    urls = AdvertisedAddresses(settings).at(
        settings.broker_service_port,
        settings.broker_service_port_tls,
        settings.web_service_port,
        settings.web_service_port_tls,
    )
    try:
        sys.stdout.write(f"magnetar addresses {urls.line}\n")
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes at exit


def problems_of_a_start(settings: Settings) -> list[str]:
    """Return a sentence for each certificate, key, provider, interceptor, converter, address and data directory of the
    settings that a start refuses. A port or data directory that a running process uses is none: it may be this broker.
    """
    checks: list[Callable[[], object]] = [
        lambda: Authenticator(settings),
        lambda: entry_interceptors.load(settings.broker_entry_metadata_interceptors),
    ]
    if settings.broker_service_port_tls is not None:
        checks.append(lambda: tls_context(settings))
    if settings.web_service_port_tls is not None:
        checks.append(lambda: tls_context(settings, web=True))
    if settings.message_converters:
        checks.append(lambda: asyncio.run(check_converters(settings)))
    checks += [partial(_check_port, settings.bind_address, *each) for each in _strictest_port(settings)]
    problems = []
    for check in checks:
        try:
            check()
        except OSError as error:
            problems.append(error.strerror or str(error))
        except ValueError as error:
            problems.append(str(error))
    problems += [f"dataDir: {each}" for each in obstacles(settings.data_dir)]
    return list(dict.fromkeys(problems))


def _strictest_port(settings: Settings) -> list[tuple[str, int]]:
    """Key and port of the listener that stands for all, because they have one address: a port that needs a right of the
    process, where there is such a port. Empty without a listener.
    """
    found = {
        "brokerServicePort": settings.broker_service_port,
        "brokerServicePortTls": settings.broker_service_port_tls,
        "webServicePort": settings.web_service_port,
        "webServicePortTls": settings.web_service_port_tls,
    }
    ports = [(key, port) for key, port in found.items() if port is not None]
    return sorted(ports, key=lambda each: not 0 < each[1] < _FIRST_FREE_PORT)[:1]


def _check_port(host: str, key: str, port: int) -> None:
    """Listen for a moment, on a free port where the number needs no right of its own. Raises: OSError."""

    async def listen() -> None:
        with told_by_setting(key, host, port):
            tried = port if 0 < port < _FIRST_FREE_PORT else 0
            for each in await bind(asyncio.get_running_loop(), host, tried):
                each.close()

    try:
        asyncio.run(listen())
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
