"""What commands and the broker's log know of a terminal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


def shows_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal whose user has not turned colours off (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
