"""The reasons for which a session does not open, or ends.

SessionRefusedError        before the handshake: an HTTP status instead of 101
└── ParameterError         400: a query parameter
BadMessageError            the client sent an invalid message: the session closes
"""

from __future__ import annotations

from typing import Final

from magnetar.protocol import pulsar_api_pb2 as pb

INVALID_DATA: Final = 1007
INTERNAL_ERROR: Final = 1011

STATUS_OF: Final[dict[int, int]] = {
    pb.AuthenticationError: 401,
    pb.AuthorizationError: 403,
    pb.TopicNotFound: 404,
    pb.MetadataError: 404,
    pb.ProducerBusy: 409,
    pb.ConsumerBusy: 409,
    pb.ProducerFenced: 409,
    pb.IncompatibleSchema: 409,
    pb.TooManyRequests: 429,
    pb.ProducerBlockedQuotaExceededError: 503,
    pb.ProducerBlockedQuotaExceededException: 503,
    pb.TopicTerminatedError: 503,
}
"""The HTTP status for a ServerError, as Apache Pulsar's AbstractWebSocketHandler gives it; all others are 500."""


class SessionRefusedError(Exception):
    """The session does not open. `status` and `reason` are the HTTP answer to the handshake."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason

    @classmethod
    def of_server_error(cls, code: int, message: str) -> SessionRefusedError:
        return cls(STATUS_OF.get(code, 500), f"Failed to create producer/consumer: {message}")


class ParameterError(SessionRefusedError):
    """A query parameter has an invalid value."""

    def __init__(self, reason: str) -> None:
        super().__init__(400, f"Invalid query params: {reason}")


class BadMessageError(Exception):
    """The client sent an invalid message; the session closes with `code`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class RequestFailedError(Exception):
    """The broker answered a request of the session with a ServerError."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
