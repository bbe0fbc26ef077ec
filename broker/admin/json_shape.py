"""How much a JSON text is made of, counted before it is decoded.

Decoded, a text of many small values takes twenty times its size and time in proportion. So a large text passes only
when it is long texts mostly: a few payloads of megabytes, not a million empty ones.
"""

from __future__ import annotations

import re
from typing import Final

from magnetar.broker.compat.rest_errors import RestError
from magnetar.broker.slices import give_way

PLAIN_BYTES: Final = 1 << 20
"""A text of this size is decoded whatever it is made of."""
MAX_TEXTS: Final = 200_000
MAX_OTHER_BYTES: Final = 1 << 20
"""Of everything between the texts: brackets, commas, numbers."""
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_SLICE_TEXTS: Final = 5000


async def check_shape(raw: bytes) -> None:
    """Raise 413 when the text is made of too much; the loop serves others meanwhile."""
    if len(raw) <= PLAIN_BYTES:
        return
    texts = inside = 0
    for found in _TEXT.finditer(raw):
        texts += 1
        inside += found.end() - found.start()
        if texts > MAX_TEXTS:
            break
        if texts % _SLICE_TEXTS == 0:
            await give_way()
    if texts > MAX_TEXTS or len(raw) - inside > MAX_OTHER_BYTES:
        raise RestError(413, "the body is made of too many values")
