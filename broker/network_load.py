"""How much of the machine's network is used, for the load report: traffic of its interfaces, in kbit/s.

Without configured names the physical interfaces count, which have a device. An interface without a stated speed (for
example of a virtual machine) has no limit, so its traffic does not count as load; a setting may give the speed.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["NetworkLoad"]

_INTERFACES: Final = Path("/sys/class/net")
_SHORTEST_S: Final = 1.0
_KBIT_OF_MBIT: Final = 1000.0
_KBIT_OF_GBIT: Final = 1e6
_BITS: Final = 8


class NetworkLoad:
    """Rates cover the time between two measurements, at least a second apart."""

    def __init__(
        self,
        names: Sequence[str] = (),
        speed_gbps: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
        interfaces: Path = _INTERFACES,
    ) -> None:
        self._names, self._speed_gbps = names, speed_gbps
        self._now_s, self._interfaces = now_s, interfaces
        self._at_s, self._bytes = now_s(), self._counts()
        self._rates = (0.0, 0.0)

    def kbits(self) -> tuple[float, float]:
        """Traffic in and out."""
        now_s = self._now_s()
        elapsed_s = now_s - self._at_s
        if elapsed_s >= _SHORTEST_S:
            counts = self._counts()
            received, sent = (
                max(0, now - before) * _BITS / 1000 / elapsed_s for now, before in zip(counts, self._bytes, strict=True)
            )
            self._rates = received, sent
            self._at_s, self._bytes = now_s, counts
        return self._rates

    def limit_kbits(self) -> float:
        """The bandwidth of each direction; 0.0 where no interface has a limit."""
        found = self._found()
        if self._speed_gbps:
            return len(found) * self._speed_gbps * _KBIT_OF_GBIT
        return sum(max(0, _number(each / "speed")) for each in found) * _KBIT_OF_MBIT

    def _counts(self) -> tuple[int, int]:
        found = self._found()
        received = sum(_number(each / "statistics" / "rx_bytes") for each in found)
        return received, sum(_number(each / "statistics" / "tx_bytes") for each in found)

    def _found(self) -> list[Path]:
        if self._names:
            return [self._interfaces / name for name in self._names]
        try:
            return sorted(each for each in self._interfaces.iterdir() if (each / "device").exists())
        except OSError:
            return []


def _number(path: Path) -> int:
    """Read a number from a file of an interface; 0 for a missing or unreadable file."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
