"""How a request over HTTP ends early."""


class RestError(Exception):
    """Ends a request with this status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class NoSuchPathError(RestError):
    """The subject of the path cannot exist: the answer is that of an unknown path."""

    def __init__(self, reason: str) -> None:
        super().__init__(404, reason)
