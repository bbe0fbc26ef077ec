"""`doctor`: checks for common faults and names the remedies; changes nothing.

Each check gives (subject, verdict, text); the exit code is 1 when a check finds an error.
"""

from __future__ import annotations

import dataclasses
import email.utils
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from magnetar.cli.commands.disk_checks import MEASURED_BYTES, file_system_of, measure, verdict
from magnetar.cli.errors import BrokerFailedError, CliError, UnreachableError
from magnetar.cli.output import shown, size_text
from magnetar.cli.session import HELP, NamedPath, Session, with_broker
from magnetar.client.connection import open_connection
from magnetar.terminal import shows_colours

if TYPE_CHECKING:
    from collections.abc import Iterator

Finding = tuple[str, str, str]
OK, WARNING, ERROR = "ok", "warning", "error"
_FEW_DESCRIPTORS: Final = 4096
_LITTLE_SPACE: Final = 1024**3
_RESERVE: Final = 16 * 1024**2  # SpaceLimits of the embedded engine: no appends while less is free
_MOST_SKEW_S: Final = 5
_CONFIG_CODE: Final = 78


@click.command(context_settings=HELP)
@click.option("--data-dir", type=NamedPath(), help="examine the disk of this directory: free space, speed, syncs")
@click.option("--config", type=NamedPath(), help="examine this settings file: wrong keys, settings without effect")
@click.option(
    "--pulsar-config",
    type=NamedPath(),
    help="the same, of any version of Apache Pulsar: keys that are not known here are listed",
)
@click.option("--no-broker", is_flag=True, help="leave out the checks of a running broker")
@with_broker
def doctor(
    session: Session, data_dir: str | None, config: str | None, pulsar_config: str | None, no_broker: bool
) -> int:
    """Examine a broker, its disk and its settings."""
    examined = [
        examined_settings(option, file, data_dir)
        for option, file in (("--config", config), ("--pulsar-config", pulsar_config))
        if file is not None
    ]
    findings: list[Finding] = []
    if not no_broker:
        findings += findings_at_addresses(session, examined)
    findings += machine_findings()
    if data_dir is not None:
        findings += disk_findings(Path(data_dir))
    for each in examined:
        findings += each.findings
    colours = {OK: "\x1b[32mok\x1b[0m", WARNING: "\x1b[33mwarning\x1b[0m", ERROR: "\x1b[31merror\x1b[0m"}
    coloured = shows_colours(sys.stdout)
    if session.out.as_json:
        session.out.value([{"check": a, "verdict": b, "text": c} for a, b, c in findings])
    else:
        width = max(len(subject) for subject, _, _ in findings)
        for subject, found, text in findings:
            word = colours[found] if coloured else found
            session.out.text(text, head=f"{shown(subject):<{width}}  {word}{' ' * (7 - len(found))}  ")
    return 1 if any(found == ERROR for _, found, _ in findings) else 0


def findings_at_addresses(session: Session, examined: list[ExaminedSettings]) -> Iterator[Finding]:
    """Check the running broker; without an address from another source, at the addresses of the settings."""
    if session.target.is_default and examined:
        addresses = examined[0].addresses
        if addresses is None:
            has_errors = any(found == ERROR for _, found, _ in examined[0].findings)
            reason = "have errors" if has_errors else "name no fixed port for each of both protocols"
            yield "service port", WARNING, f"not examined: the settings {reason}. Give --url"
            return
        service_url, admin_url = addresses
        target = dataclasses.replace(session.target, name=service_url, service_url=service_url, admin_url=admin_url)
        session = Session(target, session.out)
    yield from broker_findings(session)


def broker_findings(session: Session) -> Iterator[Finding]:
    """Check ports, health, version and clock of the running broker."""
    begun = time.perf_counter()
    try:
        session.run(_handshake(session))
        yield (
            "service port",
            OK,
            f"{session.target.service_url} answers in {(time.perf_counter() - begun) * 1e3:.0f} ms",
        )
    except CliError as error:
        yield "service port", ERROR, str(error)
    try:
        version = session.web.get("/admin/v2/brokers/version")
        yield "admin port", OK, f"{session.target.admin_url} serves the admin API, version {version}"
    except CliError as error:
        yield "admin port", ERROR, str(error)
        return
    try:
        _, headers = session.web.fetch("GET", "/admin/v2/brokers/health")
        yield "health", OK, "a message could be stored just now"
        yield clock_finding({name.lower(): value for name, value in headers.items()}.get("date"), time.time())
    except (UnreachableError, BrokerFailedError) as error:
        yield "health", ERROR, f"no message can be stored: {error}"
    except CliError as error:
        yield "health", WARNING, f"not known: {error}"


async def _handshake(session: Session) -> None:
    connection = await open_connection(session.target.address(), session.target.credentials)
    connection.close()


def clock_finding(date: str | None, now_s: float) -> Finding:
    """Check the difference between the broker's clock and the local clock, by the Date header (whole seconds)."""
    if date is None:
        return "clock", WARNING, "the broker states no time"
    skew = now_s - email.utils.parsedate_to_datetime(date).timestamp()
    if abs(skew) > _MOST_SKEW_S:
        text = f"the broker's clock is {abs(skew):.0f} s {'behind' if skew > 0 else 'ahead of'} this one"
        return "clock", WARNING, f"{text}: delayed messages, TTL and tokens go by it. Run NTP on both"
    return "clock", OK, "the same here and at the broker"


def machine_findings() -> list[Finding]:
    """Check how many descriptors a process started from here may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FEW_DESCRIPTORS:
        advice = "a broker raises its limit to the hard one: set LimitNOFILE=65536 in the unit, or ulimit -Hn"
        return [("descriptors", WARNING, f"soft {soft}, hard {hard}: {advice}")]
    return [("descriptors", OK, f"soft {soft}, hard {'unlimited' if hard == resource.RLIM_INFINITY else hard}")]


def disk_findings(directory: Path) -> Iterator[Finding]:
    """Check file system, space, writes and syncs of a directory."""
    try:
        where = directory.resolve(strict=True)
        usage = shutil.disk_usage(where)
        mounts = Path("/proc/mounts").read_text(encoding="utf-8") if Path("/proc/mounts").exists() else ""
    except OSError as error:
        yield "data directory", ERROR, f"{directory}: {error.strerror}"
        return
    point, kind = file_system_of(where, mounts)
    yield "space", *space_verdict(usage.free, f"of {size_text(usage.total)} on {point} ({kind})")
    if usage.free < _RESERVE + MEASURED_BYTES:
        text = f"not measured: a file of {size_text(MEASURED_BYTES)} would take the space that the broker needs"
        yield "disk", WARNING, text
        return
    try:
        figures = measure(where)
    except OSError as error:
        yield "disk", ERROR, f"cannot write in {where}: {error.strerror}"
        return
    yield "disk writes", OK, f"{size_text(figures.bytes_per_s)}/s with a sync at the end"
    yield ("disk syncs", *verdict(kind, figures))


def space_verdict(free_bytes: int, place: str) -> tuple[str, str]:
    """Judge the free bytes of a file system; `place` describes it."""
    text = f"{size_text(free_bytes)} free {place}"
    if free_bytes < _RESERVE:
        return ERROR, f"{text}: publishes wait or fail below {size_text(_RESERVE)}. Make room"
    return WARNING if free_bytes < _LITTLE_SPACE else OK, text


@dataclasses.dataclass(frozen=True, slots=True)
class ExaminedSettings:
    """The findings about a settings file, and the addresses (service, admin) of a broker with it; None if they are
    not known or not reachable over both protocols.
    """

    findings: list[Finding]
    addresses: tuple[str, str] | None


def examined_settings(option: str, config: str, data_dir: str | None) -> ExaminedSettings:
    """Return the result of `standalone --check` with this option for a settings file.

    Without `data_dir` the directory of the file is not examined: it may be relative to the place of a start.
    """
    # Without -P a folder `magnetar` in the working directory could take the place of this program.
    command = [sys.executable, "-P", "-m", "magnetar", "standalone", option, config, "--check"]
    command += ["--data-dir", data_dir or tempfile.gettempdir()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this project's program
    findings: list[Finding] = []
    for line in ended.stderr.splitlines():
        _, level, text = ([*line.split(": ", 2), "", ""])[:3]
        findings.append(("settings", ERROR if level == "error" else WARNING, text or line))
    if ended.returncode == 0 and not ended.stderr.strip():
        findings.append(("settings", OK, f"{config}: every setting has an effect"))
    elif ended.returncode not in (0, _CONFIG_CODE):
        findings.append(("settings", ERROR, f"{config}: exit code {ended.returncode}"))
    return ExaminedSettings(findings, addresses_in(ended.stdout))


def addresses_in(checked: str) -> tuple[str, str] | None:
    """Return service and admin address of the line that `standalone --check` prints; None without one of them, or for
    a free port of the system.
    """
    lines = (line.split() for line in checked.splitlines())  # classes of the settings may print others
    words = next((words for words in lines if words[:2] == ["magnetar", "addresses"]), [])
    if len(words) != 4 or any(url == "-" or url.endswith(":0") for url in words[2:]):
        return None
    return words[2], words[3]
