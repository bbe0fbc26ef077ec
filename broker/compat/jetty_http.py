"""HTTP as in Jetty and Jersey, which Apache Pulsar uses: media types, allowed methods, pages of missing resources."""

import asyncio
import re
import string
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from magnetar.broker.compat.java_order import java_order
from magnetar.broker.errors import RestError

_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_MATRIX: Final = re.compile(r";[^/]*")
_TEXT_PAGE: Final = (
    '<html>\n<head>\n<meta http-equiv="Content-Type" content="text/html;charset=ISO-8859-1"/>\n<title>Error {0} {1}'
    "</title>\n</head>\n<body>\n<h2>HTTP ERROR {0} {1}</h2>\n</body>\n</html>\n"
)
_ROOTS: Final = (b"/admin/v2", b"/admin/v3", b"/lookup", b"/topics")
_METHODS_WITH_PAGES: Final = ("GET", "POST", "HEAD")
_TEXTS: Final = frozenset({"text/plain", "text/*", "*/*"})
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_MEDIA_TYPE: Final = re.compile(rf'\s*({_WORD}/{_WORD})\s*(?:;\s*(?:{_WORD}\s*=\s*(?:{_WORD}|"[^"]*")\s*)?)*')
_WEIGHT: Final = re.compile(r"\bq=([01](?:\.\d{0,3})?)")
_NO_REQUEST: Final = b"Illegal character"
BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\nCache-Control: must-revalidate,no-cache,no-store\r\nContent-Type: text/plain\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_NO_REQUEST), _NO_REQUEST)
)
"""The answer to bytes that cannot begin a request."""
SERVER_ERROR: Final = "Server Error"
_TOKEN: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789" + string.ascii_letters.encode())


def media_type(header: str | None) -> str:
    """The type of a Content-Type header, "" without the header (None); raises 400 for an invalid media type, also for
    an empty header.
    """
    if header is None:
        return ""
    found = _MEDIA_TYPE.fullmatch(header)
    if found is None:
        raise RestError(400, f"{header} is no media type")
    return found[1].lower()


def is_json(kind: str) -> bool:
    """Whether a route that accepts any kind of JSON reads a body of this type."""
    return kind.endswith(("/json", "+json"))


def is_text(kind: str) -> bool:
    """Whether a route that accepts plain text reads a number, a truth value or a text of this type."""
    return kind in _TEXTS


def accepts_json(header: str) -> bool:
    """Whether an Accept header accepts application/json. An unreadable header accepts no type."""
    wanted = [part.partition(";")[0].strip().lower() for part in header.split(",") if part.strip()]
    return not wanted or any(kind in ("*/*", "application/*", "application/json") for kind in wanted)


def plain_path(path: str) -> str:
    """Return the path without matrix parameters and slashes at the end; raises 400 for a path with a NUL."""
    if "%00" in path or _BAD_ESCAPE.search(path):
        raise RestError(400, "the path holds a NUL or a % that begins no byte")
    return _MATRIX.sub("", path).rstrip("/") or "/"


def allowed(methods: Iterable[str], *, asked: bool) -> str:
    """The Allow header for the methods of a path; `asked` (by OPTIONS) adds HEAD where GET is allowed."""
    known = {*methods, "OPTIONS"} - {"HEAD"}
    return ",".join(java_order(sorted(known | {"HEAD"} if asked and "GET" in known else known)))


def methods_of(methods: Iterable[str], accepted: str) -> Response:
    """The answer to OPTIONS: the allowed methods, as text unless the Accept header prefers other types to text."""
    names = allowed(methods, asked=True)
    wanted = [_preference(part) for part in accepted.split(",") if part.strip()]
    most = max(wanted, default=(1.0, ""))[0]
    best = [kind for weight, kind in wanted if weight == most]
    if not best or _TEXTS.intersection(best):
        return Response(names.replace(",", ", "), headers={"Allow": names, "Content-Type": "text/plain"})
    return Response(headers={"Allow": names, "Content-Type": best[0]})


def _preference(part: str) -> tuple[float, str]:
    """Weight and type of an element of an Accept header."""
    kind, _, more = part.partition(";")
    found = _WEIGHT.search(more)
    return float(found[1]) if found else 1.0, kind.strip().lower()


def begins_no_request(data: bytes) -> bool:
    """Whether the bytes behind a request cannot begin another request."""
    rest = data.lstrip(b"\r\n")
    return bool(rest) and rest[0] not in _TOKEN


def phrase(status: int) -> str:
    """The words behind the number in the first line of an answer."""
    return SERVER_ERROR if status == HTTPStatus.INTERNAL_SERVER_ERROR else HTTPStatus(status).phrase


def page(status: int, method: str, headers: dict[str, str] | None = None) -> Response:
    """An HTML page for methods that read, an empty body for methods that change."""
    if method not in _METHODS_WITH_PAGES:
        return Response(status_code=status, headers=headers)
    text = _TEXT_PAGE.format(status, phrase(status))
    return Response(text, status_code=status, media_type="text/html;charset=iso-8859-1", headers=headers)


def redirect_of_root(raw_path: bytes, query: bytes) -> Response | None:
    """The redirect of a root of the API, sent without a slash at the end, to the root; None for another path."""
    path = raw_path.partition(b"?")[0]
    if path not in _ROOTS:
        return None
    location = path + b"/" + (b"?" + query if query else b"")
    return Response(status_code=301, headers={"Location": location.decode("latin-1")})


class CorkedTransport:
    """Sends all bytes written in a turn of the loop in one piece; passes other methods to the transport.

    Node's client relies on a single piece: its request with an unannounced body gets two answers, the second about the
    body. When both arrive in one piece, the client gives the connection up; when the second arrives later, the client
    has already sent its next request on the connection.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self.flush)
        self._waiting.append(data)

    def flush(self) -> None:
        """Send the waiting bytes; no effect on a closing connection."""
        waiting, self._waiting = self._waiting, []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))

    def close(self) -> None:
        """Send the waiting bytes, then close."""
        self.flush()
        self._transport.close()
