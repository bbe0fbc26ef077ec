"""`backup` and `restore`: images of the data directory of a running broker, and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from magnetar.cli.backup.images import chosen_image, images, restore_image, verify_directory, write_image
from magnetar.cli.backup.moments import covered, restore_moment, span_of, time_text
from magnetar.cli.errors import BrokerFailedError, CommandLineError, FileError, NotFoundError
from magnetar.cli.output import Output, size_text
from magnetar.cli.progress import Progress
from magnetar.cli.session import HELP, NamedPath

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MOST_DIGITS = 18


@click.command(context_settings=HELP)
@click.argument("folder", type=NamedPath(path_type=Path))
@click.option("--data-dir", type=NamedPath(path_type=Path), default=Path("data"), show_default=True)
@click.option("--list", "listed", is_flag=True, help="list the images in FOLDER")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def backup(folder: Path, data_dir: Path, listed: bool, as_json: bool) -> None:
    """Take an image of a data directory into FOLDER, verified and incremental, while its broker runs.

    The broker stands still for about a tenth of a second. Run this on its machine, as its user. FOLDER belongs on
    another disk.
    """
    out = Output(as_json=as_json)
    if listed:
        if not folder.is_dir():
            raise NotFoundError(f"there is no folder {folder}")
        found = images(folder)
        rows = [
            (path.name, facts["moment_ms"], facts["new_bytes"], time_text(since))
            for (path, facts), since in zip(found, covered(found), strict=True)
        ]
        out.table(("IMAGE", "MOMENT MS", "NEW BYTES", "COVERS SINCE"), rows, empty=f"no images in {folder}")
        return
    try:
        with Progress("copying", None) as progress:
            facts = write_image(data_dir, folder, progress.add)
    except OSError as error:
        raise FileError(f"{error.filename or folder}: {error.strerror or error}") from error
    stood = f"; the broker stood still for {facts['stopped_ms']:.0f} ms" if facts["stopped_ms"] else ""
    out.done(f"{facts['image']}: verified, {size_text(facts['new_bytes'])} new{stood}", **facts)


@click.command(context_settings=HELP)
@click.argument("folder", type=NamedPath(path_type=Path))
@click.argument("data_dir", type=NamedPath(path_type=Path))
@click.option(
    "--at", "moment", metavar="TIME", help="the newest image of this time or before: 2026-01-02T03:04:05Z, or ms"
)
@click.option("--until", metavar="TIME", help="all messages stored up to this time, also between images")
@click.option("--unverified", is_flag=True, help="keep the copy of an image as it is, also with damaged entries")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def restore(
    folder: Path, data_dir: Path, moment: str | None, until: str | None, unverified: bool, as_json: bool
) -> None:
    """Make DATA_DIR, which is absent or empty, of an image in FOLDER. The broker that will use it must be stopped.

    DATA_DIR appears when `magnetar verify` has passed. With --until, of the two images around a time: subscriptions as
    in the earlier image, messages up to the time.
    """
    if until is not None:
        if moment is not None:
            raise CommandLineError("--at and --until exclude each other")
        if unverified:
            raise CommandLineError("--unverified and --until exclude each other")
        _restore_until(folder, data_dir, until, Output(as_json=as_json))
        return
    image, facts = chosen_image(folder, _milliseconds("--at", moment) if moment is not None else None)
    try:
        with Progress("restoring", None) as progress:
            if unverified:
                restore_image(image, data_dir, progress.add)
            else:
                restore_image(image, data_dir, progress.add, _check)
    except OSError as error:
        raise FileError(f"{error.filename or data_dir}: {error.strerror or error}") from error
    state = f"is as {image.name}{'' if unverified else ', verified'}"
    text = f"{data_dir} {state}; start a broker with --data-dir {data_dir}, as the user who owns it"
    Output(as_json=as_json).done(text, image=image.name, moment_ms=facts["moment_ms"], data_dir=str(data_dir))


def _restore_until(folder: Path, data_dir: Path, until: str, out: Output) -> None:
    until_ms = _milliseconds("--until", until)
    span = span_of(folder, until_ms)
    try:
        with Progress("restoring", None) as progress:
            restore_moment(span, data_dir, until_ms, progress.add, _check)
    except OSError as error:
        raise FileError(f"{error.filename or data_dir}: {error.strerror or error}") from error
    before, behind = (path.name for path, _ in span)
    text = (
        f"{data_dir} has the messages up to {time_text(until_ms)}, its subscriptions are those of {before}; "
        f"start a broker with --data-dir {data_dir}, as the user who owns it"
    )
    out.done(text, before=before, behind=behind, moment_ms=until_ms, data_dir=str(data_dir))


def _check(data_dir: Path) -> None:
    try:
        verify_directory(data_dir)
    except BrokerFailedError as error:
        raise BrokerFailedError(
            f"{error}\nrestore an earlier image with --at, or an image as it is with --unverified"
        ) from error


def _milliseconds(option: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandLineError(f"{option} {text}: give a time as 2026-01-02T03:04:05Z") from None
    if moment.tzinfo is None:
        raise CommandLineError(f"{option} {text}: add Z or an offset such as +02:00")
    return (moment - _EPOCH) // _MILLISECOND
