"""`magnetar kafka import` from beginning to end: the files one after the other, the report, the exit code."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING

from magnetar.client.address import Address, Credentials, read_token
from magnetar.client.admin import AdminApi
from magnetar.client.errors import ClientError, InputError
from magnetar.converters.kafka.transactions import Isolation
from magnetar.converters.kafka_entry.import_plan import SequenceMode
from magnetar.importing.planning import FilePolicy, file_steps
from magnetar.importing.progress import FileReport, Progress
from magnetar.importing.protection import Protect
from magnetar.importing.source import Source, find_files, is_empty_segment
from magnetar.importing.topic_session import Target
from magnetar.importing.transactions import TransactionReader
from magnetar.importing.transfer import Transfer, TransferOptions
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    import argparse

    from magnetar.converters.kafka.transactions import Transactions

EXIT_INTERRUPTED = 130
_MAX_MESSAGE_BYTES = 5 * 1024 * 1024


def run_import(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code of the process."""
    progress = Progress(sys.stderr, quiet=options.quiet)
    reports: list[FileReport] = []
    code = 0
    try:
        asyncio.run(_run(options, progress, reports))
    except ClientError as error:
        progress.complain("error", str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        progress.complain("error", "interrupted; stored entries stay: run the same command again to continue")
        code = EXIT_INTERRUPTED
    if options.json:
        sys.stdout.write(
            json.dumps({"exit_code": code, "files": [each.to_json() for each in reports]}, indent=1) + "\n"
        )
    else:
        for each in reports:
            sys.stdout.write(_as_text(each, dry_run=options.dry_run))
    return code


async def _run(options: argparse.Namespace, progress: Progress, reports: list[FileReport]) -> None:
    """Raises: ImportFailedError."""
    transfer = None if options.dry_run else _transfer(options, progress)
    _topic(options.topic)
    isolated = options.isolation_level == Isolation.READ_COMMITTED
    mode = None if options.sequence_ids == "auto" else SequenceMode(options.sequence_ids)
    files = find_files(options.files)
    if options.label is not None and len(files) > 1:
        raise InputError("--label names one file; give one, or leave it out")
    transactions = TransactionReader(files, progress, skip_open=options.open_transactions == "skip")
    for path in files:
        if is_empty_segment(path):
            reports.append(FileReport(str(path), "", 0, SequenceMode.OFFSET.value, complete=True))
            continue
        with Source(path, label=options.label, mode=mode) as source:
            report = FileReport(str(path), source.name, source.size, source.mode.value)
            reports.append(report)
            policy = FilePolicy(
                report,
                progress,
                skip=options.on_damage == "skip",
                check_records=options.check_records,
                dry_run=options.dry_run,
                transactions=await _settled(transactions, source, report, progress) if isolated else None,
            )
            progress.start()
            if transfer is None:
                _rehearse(source, policy, report, progress)
            else:
                try:
                    await transfer.run(source, report, policy)
                finally:
                    report.kept_by = transfer.kept_by
            report.complete = True


async def _settled(reader: TransactionReader, source: Source, report: FileReport, progress: Progress) -> Transactions:
    """Return the transactions of the file's log; warn of transactions whose end marker may be lost in damage."""
    found = await asyncio.to_thread(reader.of, source)
    report.doubtful_transactions = found.doubtful
    if found.doubtful:
        progress.complain(
            "warning",
            f"{source.path}: damage lies inside {found.doubtful} transactions: whether they are committed is taken "
            "from the next marker of their producer id, which may be the one of a later transaction",
        )
    return found


def _transfer(options: argparse.Namespace, progress: Progress) -> Transfer:
    read_token(options.token)  # an unreadable token ends the command before anything is sent
    credentials = Credentials(
        token=options.token,
        tls_trust_certs=options.tls_trust_certs,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        tls_allow_insecure=options.tls_allow_insecure,
        tls_hostname_verification=not options.tls_no_hostname_verification,
    )
    service = Address.parse(options.service_url)
    admin = AdminApi(options.admin_url or service.web_url(), credentials)
    wishes = TransferOptions(
        enable_deduplication=options.enable_deduplication,
        assume_deduplication=options.assume_deduplication,
        first_import=options.first_import,
        protect=Protect(options.protect),
        subscription=options.subscription,
        retry_s=options.retry_seconds,
    )
    return Transfer(Target(service, credentials, _topic(options.topic)), admin, wishes, progress)


def _topic(text: str) -> TopicName:
    try:
        topic = TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise InputError(f"--topic {text}: {error}") from error
    if not topic.persistent:
        raise InputError(f"--topic {text}: only a persistent topic keeps imported entries")
    return topic


def _rehearse(source: Source, policy: FilePolicy, report: FileReport, progress: Progress) -> None:
    """Do a dry run: plan the entries of the file and count them, without a broker."""
    for step in file_steps(source, policy, -1, max_entry_bytes=_MAX_MESSAGE_BYTES):
        if step.entry is not None:
            report.entries += 1
            report.messages += step.entry.messages
            report.bytes += len(step.entry.data)
            progress.advance(report, step.next_position)


def _as_text(report: FileReport, *, dry_run: bool) -> str:
    verdict = "would be stored" if dry_run else "stored"
    if not report.complete:
        verdict += " before the import ends" if dry_run else " before the import ended"
    if not report.size:
        verdict += ": the segment is empty"
    if report.complete and not dry_run and not report.entries and report.resumed_after >= 0:
        verdict = "stored: everything was there already"
    left_out = f", {len(report.damage)} damaged places left out" if report.damage else ""
    if report.aborted_messages:
        left_out = f", {report.aborted_messages} messages of aborted transactions left out{left_out}"
    torn = f", torn tail at position {report.torn_at}" if report.torn_at is not None else ""
    return f"{report.file}: {report.messages} messages in {report.entries} entries {verdict}{left_out}{torn}\n"
