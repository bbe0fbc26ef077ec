"""Converters that misbehave, loaded by dotted path into brokers under test."""

import os
import time

from magnetar.converters.entry import replace_entry_format
from magnetar.converters.interface import Conversion
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


class Base:
    version = "1"

    def init(self, settings):
        pass

    def close(self):
        pass

    def accepts(self, metadata, head):
        return True

    def convert(self, metadata, payload):
        return self.good(metadata, bytes(payload))

    def good(self, metadata, payload):
        converted = MessageMetadata()
        converted.CopyFrom(metadata)
        replace_entry_format(converted, self.name)
        return Conversion(converted, payload)


class Upper(Base):
    """A correct converter, for comparison: foreign code may work as it should."""

    name = "upper"
    entry_formats = frozenset(("upper",))

    def convert(self, metadata, payload):
        print("printing must not disturb the worker")
        return self.good(metadata, bytes(payload).upper())


class Raises(Base):
    name = "raises"
    entry_formats = frozenset(("raises",))

    def convert(self, metadata, payload):
        raise RuntimeError("no")


class Sleeps(Base):
    name = "sleeps"
    entry_formats = frozenset(("sleeps",))

    def convert(self, metadata, payload):
        time.sleep(60)


class SleepsWhenAsked(Base):
    name = "sleeps-when-asked"
    entry_formats = frozenset(("sleeps-when-asked",))

    def accepts(self, metadata, head):
        time.sleep(60)


class Garbage(Base):
    name = "garbage"
    entry_formats = frozenset(("garbage",))

    def convert(self, metadata, payload):
        return b"garbage"


class WrongCount(Base):
    name = "wrong-count"
    entry_formats = frozenset(("wrong-count",))

    def convert(self, metadata, payload):
        found = self.good(metadata, bytes(payload))
        found.metadata.num_messages_in_batch = 7
        return found


class Gigabyte(Base):
    name = "gigabyte"
    entry_formats = frozenset(("gigabyte",))

    def convert(self, metadata, payload):
        return self.good(metadata, bytes(1 << 30))


class Exits(Base):
    name = "exits"
    entry_formats = frozenset(("exits",))

    def convert(self, metadata, payload):
        os._exit(3)


class Twice(Base):
    """Fails at the first attempt of each process."""

    name = "twice"
    entry_formats = frozenset(("twice",))
    calls = 0

    def convert(self, metadata, payload):
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("not yet")
        return self.good(metadata, bytes(payload))


class NoConverter:
    """Lacks everything."""


ALL = "upper", "raises", "sleeps", "sleeps-when-asked", "garbage", "wrong-count", "gigabyte", "exits", "twice"
PATHS = ",".join(
    f"tests.blackbox.bad_converters.{each.__name__}"
    for each in (Upper, Raises, Sleeps, SleepsWhenAsked, Garbage, WrongCount, Gigabyte, Exits, Twice)
)
BAD = ALL[1:-1]
