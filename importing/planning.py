"""Plans the entries of a file, and the treatment of damage and of open transactions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from magnetar.converters.errors import ConverterError
from magnetar.converters.kafka.log_file import LogDamage, LogEnd
from magnetar.converters.kafka_entry.import_plan import ImportPlan, ImportStep
from magnetar.importing.errors import DamageError, OpenTransactionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.converters.kafka.transactions import Transactions
    from magnetar.importing.progress import FileReport, Progress
    from magnetar.importing.source import Source


class FilePolicy:
    """Decides which part of a file is stored. Reports each damaged place once.

    skip: leave damage out; otherwise damage ends the import. check_records: decode records before they are stored.
    dry_run: nothing is stored; the errors are worded accordingly.
    transactions: the transactions of the file's log; None stores records of all transactions.
    """

    def __init__(
        self,
        report: FileReport,
        progress: Progress,
        *,
        skip: bool,
        check_records: bool,
        transactions: Transactions | None = None,
        dry_run: bool = False,
    ) -> None:
        self.skip = skip
        self.check_records = check_records
        self.transactions = transactions
        self._aborted_up_to = 0
        self._before = f"Everything before it {'would be' if dry_run else 'is'} stored"
        self._report = report
        self._progress = progress
        self._noted: set[int] = set()

    def __call__(self, damage: LogDamage) -> None:
        """Report damage that is left out. Raises: DamageError unless damage is skipped."""
        where = f"{self._report.file}: damage at position {damage.position}: {damage.reason}"
        size = damage.next_position - damage.position
        if not self.skip:
            raise DamageError(
                f"{where}. {self._before}; --on-damage skip leaves out these {size} bytes and goes on "
                f"at position {damage.next_position}"
            )
        if damage.position in self._noted:
            return
        self._noted.add(damage.position)
        self._report.damage.append(asdict(damage))
        self._progress.complain("warning", f"{where}; {size} bytes are left out")

    def aborted(self, step: ImportStep) -> None:
        """Count the records of an aborted transaction that the step leaves out; each step counts once."""
        if step.position >= self._aborted_up_to:
            self._aborted_up_to = step.next_position
            self._report.aborted_messages += step.aborted_messages

    def waits(self, position: int) -> None:
        """End the import at `position`: the batch there belongs to an open transaction, or stands behind the first
        batch of an open transaction. Raises: OpenTransactionError, always.
        """
        self._report.waits_at = position
        raise OpenTransactionError(
            f"{self._report.file}: a transaction is open at position {position}: the files hold neither its commit nor "
            f"its abort. {self._before}; run the same command again when the log has grown, or leave "
            "out the records of open transactions with --open-transactions skip"
        )

    def torn(self, position: int, size: int) -> None:
        """Report that the file ends inside a batch. Raises: DamageError unless damage is skipped."""
        self._report.torn_at = position
        text = (
            f"{self._report.file}: the file ends inside a batch that begins at position {position} "
            f"({size - position} bytes of it are there)"
        )
        if not self.skip:
            raise DamageError(
                f"{text}. {self._before}; run again when the file is whole, or say --on-damage skip "
                "to do without the rest"
            )
        if position not in self._noted:
            self._noted.add(position)
            self._progress.complain("warning", f"{text}; it is left out")


def file_steps(
    source: Source, policy: FilePolicy, resume_after: int, *, confirm: bool = False, max_entry_bytes: int
) -> Iterator[ImportStep]:
    """Yield the planned steps of the file behind sequence id `resume_after`.

    Args:    confirm: plan the entry that ends at `resume_after` again, see `ImportPlan`.
             max_entry_bytes: a larger entry counts as damage.
    Raises:  DamageError unless the policy skips damage, and for offsets that do not ascend; OpenTransactionError.
    """
    plan = ImportPlan(
        source.name,
        source.mode,
        publish_time=time.time_ns() // 1_000_000,
        resume_after=resume_after,
        confirm=confirm,
        check_records=policy.check_records,
        on_damage=policy,
        transactions=policy.transactions,
    )
    log = source.log(policy)
    try:
        for step in plan.steps(log):
            if step.waits:
                policy.waits(step.position)
            if step.aborted_messages:
                policy.aborted(step)
            if step.entry is not None and len(step.entry.data) > max_entry_bytes and not step.confirms:
                reason = (
                    f"the batch needs an entry of {len(step.entry.data)} bytes, the broker takes {max_entry_bytes} "
                    "(its maxMessageSize)"
                )
                policy(LogDamage(step.position, step.next_position, reason))
                continue
            yield step
    except ConverterError as error:
        raise DamageError(
            f"{source.path}: {error}; --sequence-ids position imports files whose offsets do not ascend"
        ) from error
    if log.end is LogEnd.TORN:
        policy.torn(log.valid_bytes, source.size)
