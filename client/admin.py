"""The admin REST API of a broker or a cluster, as far as the tools of this project need it."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from email.message import Message

    from magnetar.client.address import Credentials

_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class AdminApi:
    """The admin address of the cluster."""

    url: str
    credentials: Credentials

    def call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The parsed answer, None for an empty one. Raises: OSError (HTTPError is one), ValueError, InputError."""
        data, _ = self.fetch(method, path, body)
        return json.loads(data) if data else None

    def fetch(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, Message]:
        """The answer as it came, and its headers. Raises: OSError (HTTPError is one), InputError."""
        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}", method=method, data=body)  # noqa: S310 - the operator's own URL
        request.add_header("Content-Type", "application/json")
        authorization = self.credentials.authorization()
        if authorization is not None:
            request.add_header("Authorization", authorization)
        context = self.credentials.tls_context() if self.url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as answer:  # noqa: S310 - the same
            return answer.read(), answer.headers
