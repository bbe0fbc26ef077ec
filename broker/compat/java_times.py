"""Times as texts, as Java writes and reads them; all in UTC.

    instant             Instant.toString        2020-01-05T10:15:30Z, 2020-01-05T10:15:30.070Z
    offset_date_time    ISO_OFFSET_DATE_TIME    2020-01-05T10:15:30Z, 2020-01-05T10:15:30.07Z
    date_format         yyyy-MM-dd'T'HH:mm:ss.SSSXXX, the form of DateFormatter in Apache Pulsar

Pure.
"""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def instant(time_ms: int) -> str:
    """The time, with milliseconds unless they are 0; the number itself beyond Python's calendar (year 9999)."""
    moment = _moment(time_ms)
    if moment is None:
        return str(time_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z" if time_ms % 1000 else f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def offset_date_time(time_ms: int) -> str:
    """The time, its fraction without trailing zeros; the number itself beyond Python's calendar (year 9999)."""
    moment = _moment(time_ms)
    if moment is None:
        return str(time_ms)
    fraction = f"{time_ms % 1000:03}".rstrip("0")
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction}Z" if fraction else f"{moment:%Y-%m-%dT%H:%M:%S}Z"


def date_format(time_ms: int) -> str:
    """The time, always with milliseconds."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(time_ms: int) -> datetime | None:
    try:
        return _FIRST + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None


def parsed_offset_date_time(text: str) -> int:
    """Milliseconds since 1970 for a date and time with an offset; raises ValueError, OverflowError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None or "T" not in text.upper():
        raise ValueError(f"Text '{text[:40]}' could not be parsed: an offset date-time is wanted")
    return (moment - _FIRST) // timedelta(milliseconds=1)


def parsed_local_date(text: str) -> int:
    """Days since 1970 for a text in the form of LocalDate; raises ValueError."""
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"no date: {text!r}")
    return (date.fromisoformat(text) - _FIRST.date()) // timedelta(days=1)


def parsed_local_time(text: str) -> int:
    """Nanoseconds since midnight for a text in the form of LocalTime; raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"no time: {text!r}")
    hour, minute, second, fraction = (each or "0" for each in found.groups())
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        raise ValueError(f"no time: {text!r}")
    return (int(hour) * 3600 + int(minute) * 60 + int(second)) * 10**9 + int(fraction.ljust(9, "0"))


def parsed_medium_date(text: str) -> int:
    """Milliseconds since 1970 at midnight of a date in DateFormat's medium form (Jan 5, 2020); raises ValueError."""
    return int(datetime.strptime(text, "%b %d, %Y").replace(tzinfo=UTC).timestamp()) * 1000
