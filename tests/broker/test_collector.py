"""Survivors of a long collection are frozen; cycles among them are found later. In a process of its own, because
freezing concerns all objects of a process."""

import subprocess
import sys
import textwrap

BEGIN = """
    import gc, weakref
    from magnetar.broker.collector import LONG_S, Collector

    class Topic:
        pass

    class Clock:
        now_s = step_s = 0.0
        def __call__(self):
            self.now_s += self.step_s
            return self.now_s

    gc.collect()
    gc.freeze()
    gc.disable()
    clock = Clock()
    collector = Collector(clock)
    collector.start()
    known = gc.get_freeze_count()
"""


def run(script: str) -> None:
    program = textwrap.dedent(BEGIN) + textwrap.dedent(script)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_survivors_of_a_long_collection_are_frozen():
    run("""
        topics = [Topic() for _ in range(100)]
        clock.step_s = LONG_S / 2
        gc.collect()
        assert gc.get_freeze_count() <= known
        clock.step_s = LONG_S * 2
        gc.collect(1)
        assert gc.get_freeze_count() <= known
        gc.collect()
        assert gc.get_freeze_count() >= known + 100
        collector.stop()
        collector.stop()
        topics += [Topic() for _ in range(100)]
        before = gc.get_freeze_count()
        gc.collect()
        assert gc.get_freeze_count() <= before
    """)


def test_cycles_among_frozen_objects_are_found_when_many_have_been_frozen():
    run("""
        clock.step_s = LONG_S * 2

        def closed():
            topic = Topic()
            topic.self = topic
            gc.collect()
            return weakref.ref(topic)

        first = closed()
        gc.collect()
        assert first() is not None
        collector.look(idle=True)
        assert first() is not None, "too few are new"
        kept = [Topic() for _ in range(known * 6 // 10)]
        gc.collect()
        collector.look(idle=False)
        assert first() is not None
        collector.look(idle=True)
        assert first() is None

        second = closed()
        kept += [Topic() for _ in range(known * 5)]
        gc.collect()
        collector.look(idle=False)
        assert second() is None
    """)
