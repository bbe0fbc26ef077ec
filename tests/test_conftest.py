"""Rules of every test hold."""

import ast
import gc

SOURCE = "\n".join(f"x{i} = [{i}, ({i}, {i}), f(a, b + c)]" for i in range(300))


class ParsesAtItsEnd:
    """An object in a reference cycle, like a task with a traceback."""

    def __init__(self):
        self.me = self

    def __del__(self):
        ast.parse("a + b")


def test_the_garbage_collector_does_not_break_a_parse():
    thresholds = gc.get_threshold()
    for _ in range(100):
        ParsesAtItsEnd()
    gc.set_threshold(5)
    try:
        assert ast.parse(SOURCE).body
        assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)


def test_full_collections_are_rare():
    """At ten collections of the middle generation they took a twentieth of the processor time of the tests."""
    assert gc.isenabled()
    assert gc.get_threshold()[2] == 100
