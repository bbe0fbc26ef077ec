import asyncio
from pathlib import Path

import pytest

from magnetar.broker.foreign_entries.config import ConvertingConfig, ConvertingSettingsError
from magnetar.broker.foreign_entries.converting_service import Converting, start_converting
from magnetar.broker.settings import Settings
from magnetar.converters.entry import Entry
from tests.broker.foreign_entries.converting_for_tests import TOPIC, World, foreign


def workers():
    """Worker processes of this process."""
    pids = [pid for each in Path("/proc/self/task").glob("*/children") for pid in text_of(each).split()]
    return [pid for pid in pids if "foreign_entries.worker" in text_of(Path(f"/proc/{pid}/cmdline"))]


def text_of(path):
    """The text of the file; an empty text when the thread or the process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def test_no_converters_no_service():
    settings = Settings(message_converters=("nonsense",), message_converters_optional=True)
    assert await start_converting(settings, lambda: 0, lambda name: ()) is None
    assert workers() == []


async def test_a_refusal_leaves_no_process():
    settings = Settings(message_converters=("tests.missing.Nothing",))
    with pytest.raises(ConvertingSettingsError, match=r"tests\.missing"):
        await start_converting(settings, lambda: 0, lambda name: ())
    assert workers() == []


async def test_both_forms_of_an_entry():
    service = Converting(ConvertingConfig(("bytes",)), lambda: 0)
    await service.start()
    try:
        entry = foreign(b"payload", messages=1)
        prefix = b"\x0e\x02\x00\x00\x00\x02\x08\x05"
        shown, converter = await service.show("t", prefix + entry)
        assert converter == "bytes"
        assert shown.startswith(prefix)
        assert bytes(Entry(shown[len(prefix) :]).payload).endswith(b"payload")
        assert await service.show("t", foreign(b"x", None)) == (foreign(b"x", None), "")
        bad = foreign(b"x", messages=3)
        shown, failed = await service.show("t", bad)
        assert shown == bad
        assert failed == "failed: exception: raw bytes cannot hold 3 messages"
        assert len(workers()) == 1
    finally:
        await asyncio.wait_for(service.close(), 10)
    assert workers() == []


def test_a_closed_topic_is_forgotten():
    world = World()
    again = world.service.topic(TOPIC, dict)
    world.topic.close()
    assert world.service.topics == {TOPIC: again}
    again.close()
    assert world.service.topics == {}
