"""The admin REST API of a broker or a cluster, as far as the tools of this project need it."""

from __future__ import annotations

import functools
import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from magnetar.client.address import is_loopback

if TYPE_CHECKING:
    import ssl
    from email.message import Message

    from magnetar.client.address import Credentials

_TIMEOUT_S = 20.0
_MAX_REDIRECTS = 5
_REDIRECTS = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)


@dataclass(frozen=True, slots=True)
class AdminApi:
    """The admin address of the cluster. A call to a loopback address makes no use of the proxies of the environment
    (`http_proxy`): a proxy cannot reach it. With `direct` no call does.
    """

    url: str
    credentials: Credentials
    timeout_s: float = _TIMEOUT_S
    direct: bool = False

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The parsed answer, None for an empty answer. Raises: OSError (also as HTTPError), ValueError, InputError."""
        data, _ = self.fetch(method, path, body)
        return json.loads(data) if data else None

    def fetch(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, Message]:
        """Return the body of the answer, unparsed, and its headers; follow redirects to the broker that serves a topic.

        Raises: OSError (also as HTTPError), InputError.
        """
        url = f"{self.url.rstrip('/')}{path}"
        for _ in range(_MAX_REDIRECTS):
            try:
                return self._fetch(method, url, body)
            except urllib.error.HTTPError as error:
                there = error.headers.get("Location", "")
                if error.code not in _REDIRECTS or not there.startswith(("http://", "https://")):
                    raise
                error.close()
                url = there
        raise OSError(f"{path}: more than {_MAX_REDIRECTS} redirects")

    def _fetch(self, method: str, url: str, body: bytes | None) -> tuple[bytes, Message]:
        request = urllib.request.Request(url, method=method, data=body)  # noqa: S310 - the operator's own URL
        request.add_header("Content-Type", "application/json")
        authorization = self.credentials.authorization()
        if authorization is not None:
            request.add_header("Authorization", authorization)
        context = self.credentials.tls_context() if url.startswith("https:") else None
        try:
            if self.direct or is_loopback(urlsplit(url).hostname or ""):
                answer = _without_proxies(context).open(request, timeout=self.timeout_s)
            else:
                answer = urllib.request.urlopen(request, timeout=self.timeout_s, context=context)  # noqa: S310 - the same
            with answer:
                return answer.read(), answer.headers
        except HTTPException as e:
            raise OSError(f"no answer in HTTP from {url}: {type(e).__name__}") from e


@functools.lru_cache(1)  # calls without TLS share an opener
def _without_proxies(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
