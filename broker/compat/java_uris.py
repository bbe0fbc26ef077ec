"""Addresses as Java's `java.net.URI` reads them: which texts are an URI, and with which scheme."""

import re
from typing import Final

_OTHER: Final = r"[^\x00-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_PLAIN: Final = rf"[\w.!~*'();:@&=+$,-]|%[0-9a-f]{{2}}|{_OTHER}"
_PATH: Final = rf"(?:{_PLAIN}|/)*"
_QUERY: Final = rf"(?:{_PLAIN}|[/?\[\]])*"
_SIX: Final = rf"(?:(?:{_PLAIN})*@)?\[[0-9a-f:.]+(?:%\w+)?\](?::\d*)?"
_URI: Final = re.compile(
    rf"(?P<scheme>[a-z][a-z0-9+.-]*):"
    rf"(?://(?=.)(?:{_SIX}|(?:{_PLAIN})*)(?:/{_PATH})?(?:\?{_QUERY})?"
    rf"|/(?!/){_PATH}(?:\?{_QUERY})?"
    rf"|(?!/)(?:{_PLAIN}|[?\[\]]){_QUERY})"
    rf"(?:#{_QUERY})?",
    re.IGNORECASE | re.ASCII,
)


def scheme_of(text: str) -> str | None:
    """The scheme as written; None where Java's parser refuses the text or the text has no scheme."""
    found = _URI.fullmatch(text)
    return None if found is None else found["scheme"]
