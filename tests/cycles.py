"""The objects of the project that form cycles without references from outside."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Collect no garbage meanwhile, and leave out all older objects for good: an object of another test may become
    garbage at any time, for example at the end of a thread. `thaw` lets the collector free them again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def thaw() -> None:
    """Free the cycles among the objects that `no_collections` left out, and leave out the survivors, as at the start of
    all tests.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def cycles() -> Counter:
    """The objects of the broker that only the garbage collector frees, by type, since the last collection."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = [each for each in gc.garbage if type(each).__module__.startswith("magnetar.")]
        return Counter(type(each).__qualname__ for each in found)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
