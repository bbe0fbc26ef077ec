"""Imports one file into the topic: repeats attempts until all entries are stored; each attempt starts at the resume
point that the topic gives.

    open the producer -> last sequence id L of its name
        L >= 0   the broker deduplicates and knows the name: confirm L, continue behind it
        L == -1  make sure that the topic deduplicates, search the topic for entries of a forgotten run
    send everything behind the resume point, many entries ahead of their receipts
    connection lost, broker restarted, topic moved -> from the top, with the broker's current answers

The import keeps no state on its own side, so `kill -9` of either side at any point neither loses nor repeats an entry.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.deduplication import ensure_deduplication, ensure_not_created_in_vain
from magnetar.client.errors import DeduplicationError, RefusedError, RetryError
from magnetar.importing.conversion import warn_unless_converted
from magnetar.importing.errors import DamageError, OpenTransactionError, UnreachableError
from magnetar.importing.planning import file_steps
from magnetar.importing.protection import SUBSCRIPTION, Protect, Protection
from magnetar.importing.topic_memory import no_right_to_read, read_stored_sequence_ids
from magnetar.importing.topic_session import open_session

if TYPE_CHECKING:
    from magnetar.client.admin import AdminApi
    from magnetar.converters.kafka_entry.import_plan import ImportStep
    from magnetar.importing.import_producer import ImportProducer
    from magnetar.importing.planning import FilePolicy
    from magnetar.importing.progress import FileReport, Progress
    from magnetar.importing.source import Source
    from magnetar.importing.topic_session import Target, TopicSession

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """The options of the command line.

    assume_deduplication: do not ask the admin API about deduplication; the first entry proves it.
    first_import: do not search the topic for entries of earlier runs whose names the broker has forgotten.
    protect: the protection given to a topic without subscription and retention; `subscription` names the subscription.
    retry_s: the import gives up after so many seconds without progress.
    """

    enable_deduplication: bool = False
    assume_deduplication: bool = False
    first_import: bool = False
    protect: Protect = Protect.SUBSCRIPTION
    subscription: str = SUBSCRIPTION
    retry_s: float = 60.0


class Transfer:
    """Imports files, one after the other, into one topic."""

    def __init__(self, target: Target, admin: AdminApi, options: TransferOptions, progress: Progress) -> None:
        self._target = target
        self._admin = admin
        self._options = options
        self._progress = progress
        self._memory: dict[str, int] | None = {} if options.first_import else None
        self._deduplicates = False
        self._announced = False
        self._topic_checked = False
        self._conversion_checked = False
        self._protection = Protection(target.topic, admin, options.protect, options.subscription, progress)

    @property
    def kept_by(self) -> str | None:
        """Describe the protection of the imported entries; None before the first entry, or without protection."""
        return self._protection.kept_by

    async def run(self, source: Source, report: FileReport, policy: FilePolicy) -> None:
        """Import the whole file; return when the broker has stored every entry of it.

        Raises: ImportFailedError and its subclasses, InputError, RefusedError, DeduplicationError.
        """
        self._announce()
        pause, deadline = _FIRST_PAUSE_S, time.monotonic() + self._options.retry_s
        while True:
            before = report.entries
            try:
                await self._attempt(source, report, policy)
            except RetryError as error:
                if report.entries > before:
                    pause, deadline = _FIRST_PAUSE_S, time.monotonic() + self._options.retry_s
                if time.monotonic() > deadline:
                    raise UnreachableError(
                        f"{error}; gave up after {self._options.retry_s:.0f} s without progress. Stored entries stay: "
                        "run the same command again to continue"
                    ) from error
                self._progress.say(f"{error}; trying again")
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                return

    async def _attempt(self, source: Source, report: FileReport, policy: FilePolicy) -> None:
        session = await open_session(self._target)
        try:
            await self._ensure_not_created_in_vain()
            producer = await session.open_producer(source.name)
            resume_after = await self._resume_after(producer)
            report.resumed_after = max(resume_after, report.resumed_after)
            if resume_after >= 0:
                self._progress.say(f"{source.path}: {source.name} is stored up to sequence id {resume_after}: going on")

            def on_stored(step: ImportStep, new: bool) -> None:
                assert step.entry is not None, "only entries have receipts"
                if new:
                    report.entries += 1
                    report.messages += step.entry.messages
                    report.bytes += len(step.entry.data)
                else:
                    report.entries_before += 1
                self._progress.advance(report, step.next_position)

            producer.on_stored = on_stored
            await self._send(session, producer, source, report, policy, resume_after)
        finally:
            session.close()

    async def _send(
        self,
        session: TopicSession,
        producer: ImportProducer,
        source: Source,
        report: FileReport,
        policy: FilePolicy,
        resume_after: int,
    ) -> None:
        told = producer.last_sequence_id
        confirm = told >= 0 and told == resume_after
        steps = file_steps(
            source, policy, resume_after, confirm=confirm, max_entry_bytes=session.connection.max_message_bytes
        )
        try:
            for step in steps:
                if step.entry is None:
                    continue
                confirm = confirm and not step.confirms
                if not step.confirms:
                    await self._ensure_converted()
                    await self._protection.ensure(session)
                await producer.send(step)
                if not self._deduplicates:
                    await producer.wait_receipts()
                    producer = await self._proven(session, producer, step, report)
        except (DamageError, OpenTransactionError):
            await producer.wait_receipts()  # the error states that all earlier entries are stored
            raise
        await producer.wait_receipts()
        await producer.close()
        if confirm:
            self._progress.complain(
                "warning",
                f"{source.path}: no batch ends at sequence id {resume_after}, up to which the topic has this file: the "
                "file is shorter than it was, or has changed",
            )

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            self._progress.say(f"importing into {self._target.topic} at {self._target.service.url()}")

    async def _ensure_converted(self) -> None:
        """Warn, once, of a broker that converts no entries."""
        if not self._conversion_checked:
            self._conversion_checked = True
            await asyncio.to_thread(warn_unless_converted, self._admin, self._progress)

    async def _ensure_not_created_in_vain(self) -> None:
        """Check that an absent topic would deduplicate, because opening the first producer creates the topic. Once.

        Raises: DeduplicationError.
        """
        if self._topic_checked or self._options.assume_deduplication:
            return
        self._topic_checked = True
        exists = await asyncio.to_thread(
            ensure_not_created_in_vain, self._admin, self._target.topic, enable=self._options.enable_deduplication
        )
        if not exists:
            self._memory = {}

    async def _resume_after(self, producer: ImportProducer) -> int:
        """Return the highest sequence id that the broker has accepted, and perhaps stored, under the producer's name;
        -1 for none.
        """
        if producer.last_sequence_id >= 0:
            self._deduplicates = True
            return producer.last_sequence_id
        if not self._deduplicates and not self._options.assume_deduplication:
            await asyncio.to_thread(
                ensure_deduplication,
                self._admin,
                self._target.topic,
                enable=self._options.enable_deduplication,
                say=self._progress.say,
            )
            self._deduplicates = True
        if self._memory is None:
            self._memory = await self._read_topic()
        return self._memory.get(producer.name, -1)

    async def _read_topic(self) -> dict[str, int]:
        session = await open_session(self._target)
        try:
            return await read_stored_sequence_ids(session, self._progress.reading)
        except RefusedError as error:
            raise no_right_to_read(error) from error
        finally:
            session.close()

    async def _proven(
        self, session: TopicSession, producer: ImportProducer, step: ImportStep, report: FileReport
    ) -> ImportProducer:
        """Prove deduplication: a reopened producer gets the sequence id of `step` from a topic that deduplicates.

        Returns the reopened producer. Raises: DeduplicationError.
        """
        assert step.entry is not None, "it was sent"
        await producer.close()
        again = await session.open_producer(producer.name)
        again.on_stored = producer.on_stored
        if again.last_sequence_id < step.entry.highest_sequence_id:
            raise DeduplicationError(
                f"the topic does not deduplicate, against --assume-deduplication: the first entry ({report.messages} "
                "messages) has been stored, and another run would store it again. Switch deduplication on, and run "
                "again without --assume-deduplication: the import finds the stored entries in the topic then"
            )
        self._deduplicates = True
        return again
