"""The input and the result of an authentication provider."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

PeerCertificate = Mapping[str, Any]  # as ssl.SSLObject.getpeercert() gives it; empty when it was not verified


class AuthenticationFailedError(Exception):
    """The credentials do not prove a role. The text goes to the log; the answer to the client does not name the wrong
    part.

    kind: a word for the metrics: INVALID, EXPIRED, NO_PROVIDER or BUSY.
    """

    def __init__(self, text: str, kind: str = "INVALID") -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A proven role. `expires_ms`: wall clock time from which the proof no longer holds; None: never."""

    role: str
    method: str
    expires_ms: int | None = None


class Provider(Protocol):
    """One way to prove a role. `method` is its name on the wire.

    renews: whether AUTH_RESPONSE brings a new proof; without, the proof of CONNECT holds until the connection ends and
    an AUTH_RESPONSE has no effect, as in Apache Pulsar.
    """

    @property
    def method(self) -> str: ...
    @property
    def renews(self) -> bool: ...

    async def authenticate(self, credentials: bytes, certificate: PeerCertificate | None) -> Authenticated:
        """The role; raises AuthenticationFailedError. Work of more than a millisecond runs in a thread."""
        ...
