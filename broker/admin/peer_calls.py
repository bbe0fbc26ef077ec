"""Calls of this broker to its cluster's brokers, by HTTP: for requests about topics and bundles of other brokers.

A call goes to this broker itself, which answers or redirects to the owner, as for clients. The call carries the
credentials of brokerClientAuthenticationPlugin: the broker has checked the rights of the client before.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from magnetar.broker.errors import RestError
from magnetar.client.admin import AdminApi
from magnetar.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.client.address import Credentials

__all__ = ["PeerCalls"]

_AT_ONCE: Final = 8
_TIMEOUT_S: Final = 30.0
_MOST_REASON_BYTES: Final = 4096
_DOTS: Final = (".", "..")
_NOT_TAKEN: Final = "another broker does not take the credentials of brokerClientAuthenticationPlugin"


class PeerCalls:
    """Makes at most 8 calls at a time, in threads of its own: a call that waits for another broker does not delay other
    work in threads. `own_url()` returns the web address of this broker.
    """

    def __init__(self, own_url: Callable[[], str], credentials: Credentials) -> None:
        self._own_url, self._credentials = own_url, credentials
        self._threads = ThreadPoolExecutor(_AT_ONCE, "peer-call")

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Call; return the parsed answer, None for an empty answer. Raises RestError with the status and reason of a
        refusal, 503 when the broker does not answer, 500 when it does not accept this broker's credentials, 400 for a
        path with a segment of dots: Apache Pulsar resolves it, so that the call would be another call.
        """
        if any(unquote(segment) in _DOTS for segment in path.partition("?")[0].split("/")):
            raise RestError(HTTPStatus.BAD_REQUEST, "a name in the path consists of dots")
        api = AdminApi(self._own_url(), self._credentials, _TIMEOUT_S, direct=True)
        data = None if body is None else json.dumps(body).encode()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, _answer, api, method, path, data)
        except (OSError, HTTPException, ValueError, ClientError) as error:
            raise RestError(HTTPStatus.SERVICE_UNAVAILABLE, f"another broker does not answer: {error}") from error


def _answer(api: AdminApi, method: str, path: str, data: bytes | None) -> Any:
    """Make the call, in a thread. Raises RestError with the reason of a refusal; other errors as `AdminApi.call`."""
    try:
        return api.call(method, path, data)
    except urllib.error.HTTPError as error:
        reason = _reason(error)
        if error.code == HTTPStatus.UNAUTHORIZED:
            raise RestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"{_NOT_TAKEN}: {reason}") from error
        raise RestError(error.code, reason) from error


def _reason(error: urllib.error.HTTPError) -> str:
    with error:
        text = error.read(_MOST_REASON_BYTES).decode(errors="replace")
    try:
        return str(json.loads(text)["reason"])
    except (ValueError, KeyError, TypeError):
        return f"another broker refused: {error.code}"
