"""`backup` and `restore`: images of the data directory of a running broker, and back."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from magnetar.cli.backup.images import chosen_image, images, restore_image, write_image
from magnetar.cli.errors import CommandLineError, FileError
from magnetar.cli.output import Output, size_text
from magnetar.cli.progress import Progress
from magnetar.cli.session import HELP


@click.command(context_settings=HELP)
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--data-dir", type=click.Path(path_type=Path), default=Path("data"), show_default=True)
@click.option("--list", "listed", is_flag=True, help="list the images in FOLDER")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def backup(folder: Path, data_dir: Path, listed: bool, as_json: bool) -> None:
    """Take an image of a data directory into FOLDER, verified and incremental, while its broker runs.

    The broker stands still for some milliseconds. Run this on its machine, as its user. FOLDER belongs on another disk.
    """
    out = Output(as_json=as_json)
    if listed:
        rows = [(path.name, facts["moment_ms"], facts["new_bytes"]) for path, facts in images(folder)]
        out.table(("IMAGE", "MOMENT MS", "NEW BYTES"), rows, empty=f"no images in {folder}")
        return
    try:
        with Progress("copying", None) as progress:
            facts = write_image(data_dir, folder, progress.add)
    except OSError as error:
        raise FileError(f"{error.filename or folder}: {error.strerror or error}") from error
    stood = f"; the broker stood still for {facts['stopped_ms']:.0f} ms" if facts["stopped_ms"] else ""
    out.done(f"{facts['image']}: verified, {size_text(facts['new_bytes'])} new{stood}", **facts)


@click.command(context_settings=HELP)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option("--at", "moment", metavar="TIME", help="the newest image of this time or before: 2026-01-02T03:04:05Z")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def restore(folder: Path, data_dir: Path, moment: str | None, as_json: bool) -> None:
    """Make DATA_DIR, which is absent or empty, of an image in FOLDER. The broker that will use it must be stopped."""
    image, facts = chosen_image(folder, _milliseconds(moment))
    try:
        with Progress("restoring", None) as progress:
            restore_image(image, data_dir, progress.add)
    except OSError as error:
        raise FileError(f"{error.filename or data_dir}: {error.strerror or error}") from error
    text = f"{data_dir} is as {image.name}; start a broker with --data-dir {data_dir}, as the user who owns it"
    Output(as_json=as_json).done(text, image=image.name, moment_ms=facts["moment_ms"], data_dir=str(data_dir))


def _milliseconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandLineError(f"--at {text}: give a time as 2026-01-02T03:04:05Z") from None
    if moment.tzinfo is None:
        raise CommandLineError(f"--at {text}: add Z or an offset such as +02:00")
    return int(moment.timestamp() * 1000)
