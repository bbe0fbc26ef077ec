"""The service of conversion that the broker owns: the shared tools, and the books of each loaded topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog

from magnetar.broker.foreign_entries.config import ConvertingConfig, ConvertingSettingsError
from magnetar.broker.foreign_entries.converter_figures import ConvertingFigures, gather
from magnetar.broker.foreign_entries.dead_letters import DeadLetters
from magnetar.broker.foreign_entries.frames import Declined
from magnetar.broker.foreign_entries.loading import is_builtin, load_builtin
from magnetar.broker.foreign_entries.tools import ConvertingTools
from magnetar.broker.foreign_entries.topic_converting import TopicConverting
from magnetar.broker.foreign_entries.worker_process import WorkerError
from magnetar.broker.tasks import TaskSet
from magnetar.converters.outcome import ConversionFailure
from magnetar.protocol import speed

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings
    from magnetar.broker.topics.topic_registry import Topics
    from magnetar.protocol.topic_name import TopicName

log = structlog.get_logger(__name__)
SharedProperties = Callable[["TopicName"], tuple[Mapping[str, str], ...]]


class Converting:
    """The order of calls: `await start()`, `use_topics(...)`, a `topic(...)` for each loaded topic, `await close()`."""

    def __init__(
        self,
        config: ConvertingConfig,
        now_ms: Callable[[], int],
        shared_properties: SharedProperties = lambda _name: (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.tools = ConvertingTools(config, now_ms, clock)
        self.topics: dict[TopicName, TopicConverting] = {}
        self._shared_properties = shared_properties
        self._tasks = TaskSet()

    async def start(self) -> tuple[str, ...]:
        """Load the chain; returns a sentence for each optional converter that is left out.

        Raises: ConvertingSettingsError.
        """
        tools, welcome = self.tools, None
        if not all(map(is_builtin, tools.config.specs)):
            worker = tools.new_worker()
            try:
                await worker.start()
            except WorkerError as error:
                raise ConvertingSettingsError(f"messageConverters: {error}") from error
            welcome = worker.welcome
            if welcome.refusal is None:
                tools.pool.adopt(worker)
            else:
                await worker.kill()
        chain, problems = load_builtin(tools.config, welcome)
        tools.use(chain)
        return problems

    def use_topics(self, topics: Topics) -> None:
        """Store dead letters in `topics`. Call once, before the first dispatch."""
        self.tools.dead_letters = DeadLetters(topics, self._tasks, self.tools.now_ms)

    def topic(self, name: TopicName, own_properties: Callable[[], Mapping[str, str]]) -> TopicConverting:
        """Make the books of a loaded topic, which `figures` includes until their `close`."""
        shared = self._shared_properties
        converting = self.topics[name] = TopicConverting(
            self.tools, name, lambda: (*shared(name), own_properties()), self._closed
        )
        return converting

    def _closed(self, converting: TopicConverting) -> None:
        if self.topics.get(converting.name) is converting:
            del self.topics[converting.name]

    async def show(self, topic: str, body: bytes) -> tuple[bytes, str]:
        """Return an entry (with or without broker entry metadata) as consumers get it, and the converter's name.

        Returns the entry unchanged and "" when no converter takes the entry; the entry unchanged and
        "failed: reason: message" when the conversion fails.
        """
        prefix, entry = body[: speed.after_prefix(body)], body[speed.after_prefix(body) :]
        chosen = self.tools.chain.select(entry)
        if chosen is None:
            return body, ""
        answer = await self.tools.pool.submit(topic, chosen.name, entry)
        if isinstance(answer, ConversionFailure):
            return body, f"failed: {answer.reason}: {answer.message}"
        if isinstance(answer, Declined):
            return body, ""
        return prefix + answer.entry, chosen.name

    def figures(self) -> ConvertingFigures:
        """The figures for /metrics."""
        return gather(self.topics, self.tools)

    async def close(self) -> None:
        """End all conversions. All worker processes have ended on return."""
        await self.tools.pool.close()
        await self._tasks.close()
        for name, error in self.tools.chain.close():
            log.error("converter.close_failed", converter=name, reason=str(error))


async def start_converting(
    settings: Settings, now_ms: Callable[[], int], shared_properties: SharedProperties
) -> Converting | None:
    """Start the service; return None when the settings load no converter. Raises: ConvertingSettingsError.

    shared_properties: returns the properties of a topic's namespace, and of its partitioned topic if it is a partition.
    """
    converting = Converting(ConvertingConfig.of(settings), now_ms, shared_properties)
    try:
        problems = await converting.start()
    except BaseException:
        await converting.close()
        raise
    for problem in problems:
        log.warning("converter.left_out", reason=problem)
    log.info("converters.loaded", converters=[each.tag for each in converting.tools.chain.converters])
    if converting.tools.chain:
        return converting
    await converting.close()
    return None


async def check_converters(settings: Settings) -> None:
    """Load the converters of the settings and let them go. Raises: ConvertingSettingsError."""
    converting = Converting(ConvertingConfig.of(settings), lambda: 0)
    try:
        await converting.start()
    finally:
        await converting.close()
