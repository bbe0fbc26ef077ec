"""Recognises a burst: a time in which the journal uses much of the device with large frames. Pure."""

from __future__ import annotations

__all__ = ["Burst"]

_WINDOW_S = 0.005
_BUSY_PART = 0.25
"""In a burst the journal writes frames for at least this part of the time. A closed loop of producers leaves the device
idle while receipts travel and the next messages come.
"""
_LARGE_FRAME_BYTES = 48 << 10
"""In a burst frames have at least this many bytes on average. Small frames take much time for few bytes, and leave
write-behind enough of the device.
"""


class Burst:
    """Judges the frames of each window of at least 5 ms; a judgement holds until the next."""

    def __init__(self, now_s: float) -> None:
        self.frames = self.bytes = 0
        """Frames of the window, and their bytes. The owner counts them, without a call for each frame."""
        self.frame_s = 0.0
        """The seconds that the journal took for them."""
        self._since_s = now_s
        self._lasts = False

    def lasts(self, now_s: float) -> bool:
        """Whether the journal is in a burst."""
        elapsed_s = now_s - self._since_s
        if elapsed_s >= _WINDOW_S:
            is_busy = self.frame_s >= elapsed_s * _BUSY_PART
            self._lasts = is_busy and self.bytes >= self.frames * _LARGE_FRAME_BYTES
            self._since_s, self.frame_s = now_s, 0.0
            self.frames = self.bytes = 0
        return self._lasts
