"""The objects of the project that form cycles without references from outside."""

import gc
from collections import Counter


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
