"""Numbers in texts, as Java reads them.

    parsed     Integer.parseInt, Long.parseLong    optional sign, decimal digits of any script, no spaces
    decoded    Long.decode                         optional sign; prefix 0x, 0X, #: hexadecimal; 0: octal; else decimal

Pure.
"""

import re
from typing import Final

_DECIMAL: Final = re.compile(r"[+-]?\d{1,20}")
_LARGEST_UNIT: Final = "\uffff"  # Java finds digits in units of UTF-16
_DECODED: Final = re.compile("([+-]?)(0[xX]|#|0(?=[0-9a-fA-F]))?([0-9a-fA-F]{1,64})")


def is_decimal(text: str) -> bool:
    """Whether the text is a decimal number of at most 20 digits; the range is not checked."""
    return _DECIMAL.fullmatch(text) is not None and max(text) <= _LARGEST_UNIT


def parsed(text: str, bits: int = 64) -> int:
    """The signed number of so many bits; raises ValueError."""
    if not is_decimal(text):
        raise ValueError(f"no integer: {text!r}")
    return _checked(int(text), bits)


def decoded(text: str, bits: int = 64) -> int:
    """The signed number of so many bits; raises ValueError."""
    match = _DECODED.fullmatch(text)
    if match is None:
        raise ValueError(f"no integer: {text!r}")
    base = {None: 10, "0": 8}.get(match[2], 16)
    return _checked(int(match[1] + match[3], base), bits)


def fits(value: int, bits: int) -> bool:
    """Whether the value is a signed number of so many bits."""
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _checked(value: int, bits: int) -> int:
    if not fits(value, bits):
        raise ValueError(f"{value} is out of range of {bits} bits")
    return value
