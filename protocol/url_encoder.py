"""Names as java.net.URLEncoder writes them, in the paths of a metadata store that Apache Pulsar shares."""

from __future__ import annotations

from urllib.parse import quote_plus

__all__ = ["url_encoded", "url_encoder_path"]

_FROM_QUOTE = (("%20", "+"), ("%2A", "*"), ("~", "%7E"))


def url_encoded(name: str) -> str:
    """Return the encoded name: a blank becomes ``+``, ``*`` stays, ``~`` is encoded."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def url_encoder_path(path: str) -> str:
    """Encode a path as URLEncoder does; `urllib.parse.quote` has encoded its parts before."""
    for quoted, encoded in _FROM_QUOTE:
        path = path.replace(quoted, encoded)
    return path
