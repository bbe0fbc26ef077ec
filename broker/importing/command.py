"""`magnetar kafka import`: the command line of it, and its run from beginning to end."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.broker.importing.planning import DamagePolicy, file_steps
from magnetar.broker.importing.progress import FileReport, Progress
from magnetar.broker.importing.source import Source, find_files
from magnetar.broker.importing.topic_session import Target
from magnetar.broker.importing.transfer import Transfer, TransferOptions
from magnetar.client.address import Address, Credentials, read_token
from magnetar.client.admin import AdminApi
from magnetar.client.errors import ClientError, InputError
from magnetar.converters.kafka_entry.import_plan import SequenceMode
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    import argparse

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
        progress.complain("error", "interrupted; what is stored stays: run the same command again to go on")
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
    mode = None if options.sequence_ids == "auto" else SequenceMode(options.sequence_ids)
    files = find_files(options.files)
    if options.label is not None and len(files) > 1:
        raise InputError("--label names one file; give one, or leave it out")
    for path in files:
        with Source(path, label=options.label, mode=mode) as source:
            report = FileReport(str(path), source.name, source.size, source.mode.value)
            reports.append(report)
            policy = DamagePolicy(
                report, progress, skip=options.on_damage == "skip", check_records=options.check_records
            )
            progress.start()
            if transfer is None:
                _rehearse(source, policy, report, progress)
            else:
                await transfer.run(source, report, policy)
            report.complete = True


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
        retry_s=options.retry_seconds,
    )
    return Transfer(Target(service, credentials, _topic(options.topic)), admin, wishes, progress)


def _topic(text: str) -> TopicName:
    try:
        topic = TopicName.parse(text)
    except InvalidTopicNameError as error:
        raise InputError(f"--topic {text}: {error}") from error
    if not topic.persistent:
        raise InputError(f"--topic {text}: only a persistent topic keeps what is imported")
    return topic


def _rehearse(source: Source, policy: DamagePolicy, report: FileReport, progress: Progress) -> None:
    """A dry run: everything but the broker."""
    for step in file_steps(source, policy, -1, max_entry_bytes=_MAX_MESSAGE_BYTES):
        if step.entry is not None:
            report.entries += 1
            report.messages += step.entry.messages
            report.bytes += len(step.entry.data)
            progress.advance(report, step.next_position)


def _as_text(report: FileReport, *, dry_run: bool) -> str:
    verdict = ("would be stored" if dry_run else "stored") if report.complete else "stored before the import ended"
    if report.complete and not dry_run and not report.entries and report.resumed_after >= 0:
        verdict = "stored: everything was there already"
    left_out = f", {len(report.damage)} damaged places left out" if report.damage else ""
    torn = f", torn tail at position {report.torn_at}" if report.torn_at is not None else ""
    return f"{report.file}: {report.messages} messages in {report.entries} entries {verdict}{left_out}{torn}\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="a Kafka log segment (.log), a file of concatenated record batches, or a directory of segments",
    )
    parser.add_argument(
        "--topic", required=True, help="where to; for a partitioned topic one partition (NAME-partition-0)"
    )
    parser.add_argument("--dry-run", action="store_true", help="read and check the files, store nothing, ask no broker")
    parser.add_argument(
        "--on-damage",
        choices=["stop", "skip"],
        default="stop",
        help="at a wrong checksum, a broken frame or a torn tail: stop there (default), or leave it out and go on",
    )
    parser.add_argument(
        "--check-records", action="store_true", help="decode every record first, not only headers and checksums"
    )
    parser.add_argument(
        "--sequence-ids",
        choices=["auto", "offset", "position"],
        default="auto",
        help="what the file's progress is counted in; auto: offsets for Kafka's segment names, else positions. "
        "Never change it between runs of one import",
    )
    parser.add_argument("--label", help="the file's identity, when it moves between runs (default: DIRECTORY/NAME)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress, only warnings and errors")
    _add_broker_arguments(parser)


def _add_broker_arguments(parser: argparse.ArgumentParser) -> None:
    broker = parser.add_argument_group("broker")
    broker.add_argument("--service-url", default="pulsar://127.0.0.1:6650", metavar="URL", help="default: %(default)s")
    broker.add_argument(
        "--admin-url",
        metavar="URL",
        help="REST address, asked whether the topic deduplicates; default: port 8080 (8443)",
    )
    broker.add_argument(
        "--enable-deduplication", action="store_true", help="switch deduplication on for this topic where it is off"
    )
    broker.add_argument(
        "--assume-deduplication", action="store_true", help="do not ask the REST address; the first entry proves it"
    )
    broker.add_argument(
        "--first-import",
        action="store_true",
        help="the files were never imported into this topic: do not read it for what a forgotten run has stored",
    )
    broker.add_argument(
        "--retry-seconds", type=float, default=120.0, metavar="S", help="wait so long for a broker (default: 120)"
    )
    broker.add_argument("--token", metavar="TOKEN", help="a token, file:PATH or env:NAME")
    broker.add_argument(
        "--tls-trust-certs", metavar="FILE", help="authorities to trust, for pulsar+ssl:// and https://"
    )
    broker.add_argument("--tls-cert", metavar="FILE", help="certificate to show")
    broker.add_argument("--tls-key", metavar="FILE", help="its key")
    broker.add_argument("--tls-allow-insecure", action="store_true", help="take any certificate")
    broker.add_argument("--tls-no-hostname-verification", action="store_true", help="take one for another host")
