"""Counts calls: evidence of the cost of a piece of work that other load cannot change."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Calls", "calls_of"]

PYTHON = ("call",)
C = ("c_call",)


class Calls:
    """The calls between its begin and its end, of a kind.

    No garbage is collected meanwhile: a collection calls `gc.callbacks` (hypothesis has one) and the finalizers of
    other tests' objects, and comes wherever the objects of earlier tests bring it.
    """

    def __init__(self, events: tuple[str, ...] = (*PYTHON, *C), file: str = "") -> None:
        """`file`: part of the paths of the files whose calls count."""
        self.count = 0
        self._events = events
        self._file = file
        self._collects = False

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        self.count += event in self._events and self._file in file and file != __file__  # not the end of the count

    def __enter__(self) -> Self:
        self._collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_exception: object) -> None:
        sys.setprofile(None)
        if self._collects:
            gc.enable()


def calls_of(work: Callable[[], object], events: tuple[str, ...] = (*PYTHON, *C)) -> int:
    with Calls(events) as calls:
        work()
    return calls.count
