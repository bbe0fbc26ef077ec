"""Integrity audit: every entry of the selected topics, their cursors, and the ledger files of a data directory.

The log is checked in stretches, one pass over the headers in numpy; the driver joins the stretches of each topic
partition. Entries are read as they are stored: nothing is decompressed or decoded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.pipeline.catalog import Catalog, topic_path
from magnetar.pipeline.errors import CatalogError, NoSuchTopicError
from magnetar.pipeline.jobs.audit_facts import KINDS, Finding, StretchAudit, StretchFacts, join
from magnetar.pipeline.jobs.reading import RowReader, RowSettings, plan_tasks, stored_logs, wanted_spans
from magnetar.pipeline.offsets import Position
from magnetar.pipeline.reading.segments import open_directory
from magnetar.pipeline.reading.settings import ReadSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from magnetar.client.admin import AdminApi
    from magnetar.pipeline.jobs.runner import Runner
    from magnetar.pipeline.options import SourceOptions
    from magnetar.pipeline.planning import ReadRange
    from magnetar.pipeline.progress import Progress

_BUCKET = "#pulsar.internal.delayed.bucket"
"""Cursor properties of that prefix name the ledgers of the delayed index."""


@dataclass(frozen=True, slots=True)
class AuditPiece:
    """The work of one task; pickles."""

    ranges: tuple[ReadRange, ...]
    rows: RowSettings


@dataclass(slots=True)
class AuditReport:
    """The topics with their figures, and every finding (at most a thousand of each topic; `counts` has all)."""

    topics: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.counts[finding.kind] = self.counts.get(finding.kind, 0) + 1

    def to_json(self) -> dict[str, Any]:
        """Return the report with the number of errors, which decides about the exit code."""
        findings = [{"severity": KINDS[each.kind], **asdict(each)} for each in self.findings]
        errors = sum(count for kind, count in self.counts.items() if KINDS[kind] == "error")
        return {
            "entries": sum(each["entries"] for each in self.topics),
            "messages": sum(each["messages"] for each in self.topics),
            "bytes": sum(each["bytes"] for each in self.topics),
            "errors": errors,
            "counts": self.counts,
            "topics": self.topics,
            "findings": findings,
        }


def audit_piece(piece: AuditPiece) -> list[StretchFacts]:
    """Check the ranges of one task, one stretch each. Raises: as `RangeReader.chunks`."""
    found = []
    for each in piece.ranges:
        reader = RowReader(piece.rows)
        audit = StretchAudit(each.topic)
        assert isinstance(each.start, int)
        assert isinstance(each.end, int)
        for chunk in reader.chunks(each):
            audit.add(chunk, each.start, each.end)
        for _, ledger_id, entry_id, why in reader.take_damaged():
            audit.add_damaged(ledger_id, entry_id, why)
        found.append(audit.facts)
    return found


def audit_topics(options: SourceOptions, runner: Runner, progress: Progress) -> AuditReport:
    """Audit the selected topics; with a data directory also its ledger files. Raises: PipelineError, ClientError."""
    report = AuditReport()
    logs = stored_logs(options)
    spans = wanted_spans(options, logs)
    tasks = plan_tasks(spans, logs, options, runner.cores)
    rows = RowSettings(ReadSettings.of(options))
    weights = [sum(each.weight_bytes for each in ranges) for ranges in tasks]
    progress.begin(sum(weights))
    results = runner.map(audit_piece, [AuditPiece(tuple(ranges), rows) for ranges in tasks], progress, weights)
    by_topic: dict[str, list[StretchFacts]] = {span.topic: [] for span in spans}
    for facts in (each for result in results for each in result):
        by_topic[facts.topic].append(facts)
    for topic, stretches in by_topic.items():
        _note_topic(report, topic, join(sorted(stretches, key=lambda each: each.first_index)))
    admin = options.connect.admin()
    for topic in sorted(logs):
        for finding in cursor_findings(topic, _internal_stats(admin, topic)):
            report.add(finding)
    if options.storage_path:
        for finding in orphan_ledgers(options.storage_path, admin):
            report.add(finding)
    return report


def _note_topic(report: AuditReport, topic: str, whole: StretchFacts) -> None:
    for kind, count in whole.counts.items():
        report.counts[kind] = report.counts.get(kind, 0) + count
    report.findings += whole.findings
    report.topics.append(
        {
            "topic": topic,
            "entries": whole.entries,
            "messages": whole.messages,
            "bytes": whole.bytes,
            "first_index": whole.first_index,
            "end_index": whole.end_index,
            "first_position": whole.first_position,
            "last_position": whole.last_position,
            "findings": sum(whole.counts.values()),
        }
    )


def cursor_findings(topic: str, stats: dict[str, Any]) -> Iterator[Finding]:
    """Cursors whose mark-delete position lies behind the last confirmed entry."""
    if not stats:  # the topic was deleted meanwhile
        return
    last = Position.parse(stats["lastConfirmedEntry"])
    for name, cursor in stats.get("cursors", {}).items():
        marked = Position.parse(cursor["markDeletePosition"])
        if marked > last and (marked.ledger_id, marked.entry_id) != (last.ledger_id, -1) and marked.entry_id >= 0:
            detail = f"everything up to {marked} is acknowledged, the last confirmed entry is {last}"
            yield Finding("cursor-past-end", topic, name, detail)


def orphan_ledgers(storage_path: str, admin: AdminApi) -> Iterator[Finding]:
    """Ledger files that no topic, cursor, schema or delayed index refers to.

    The audit lists the files first and checks at the end that they still exist: ledgers that are created or deleted in
    between are no findings.
    """
    directory = open_directory(storage_path)
    if directory is None:
        raise CatalogError(f"{storage_path} is no data directory that can be read")
    files = directory.ledger_ids()
    referred = _referred_ledgers(admin)
    there = set(directory.ledger_ids())
    for ledger_id in files:
        if ledger_id not in referred and ledger_id in there:
            yield Finding("orphan-ledger", "", str(ledger_id), "no topic, cursor, schema or delayed index refers to it")


def _referred_ledgers(admin: AdminApi) -> set[int]:
    found: set[int] = set()
    for tenant in _ask(admin, "/admin/v2/tenants") or ():
        for namespace in _ask(admin, f"/admin/v2/namespaces/{tenant}") or ():
            for topic in _ask(admin, f"/admin/v2/persistent/{namespace}?includeSystemTopic=true") or ():
                found |= ledgers_of(_internal_stats(admin, topic))
    return found


def ledgers_of(stats: dict[str, Any]) -> set[int]:
    """Every ledger that the internal stats of a topic name."""
    found = {each["ledgerId"] for each in stats.get("ledgers", [])}
    found |= {each["ledgerId"] for each in stats.get("schemaLedgers") or []}
    compacted = stats.get("compactedLedger") or {}
    found.add(compacted.get("ledgerId", -1))
    for cursor in stats.get("cursors", {}).values():
        found.add(cursor.get("cursorLedger", -1))
        properties = {**(cursor.get("properties") or {}), **(cursor.get("cursorProperties") or {})}
        found |= {int(value) for key, value in properties.items() if key.startswith(_BUCKET)}
    return found - {-1}


def _internal_stats(admin: AdminApi, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = _ask(admin, f"{topic_path(topic)}/internalStats?metadata=true") or {}
    return found


def _ask(admin: AdminApi, path: str) -> Any:
    """Raises: CatalogError; None for deleted topics."""
    try:
        return Catalog(admin).answer(path)
    except NoSuchTopicError:
        return None
