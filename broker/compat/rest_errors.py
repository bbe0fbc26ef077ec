"""How a request over HTTP ends early."""


class RestError(Exception):
    """Ends a request with this status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class NoSuchPathError(RestError):
    """What the path names cannot be: as if there were no such path."""

    def __init__(self, reason: str) -> None:
        super().__init__(404, reason)
