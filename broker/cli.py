"""The command line: `magnetar standalone`, `magnetar verify DIR`, `magnetar version`.

Exit codes (docs/settings.md says the same to users):
    0   clean stop
    2   the command line itself is wrong
    74  storage failed: nothing was acknowledged that is not on disk (EX_IOERR)
    75  the data directory is in use by another broker (EX_TEMPFAIL)
    78  a setting cannot be used (EX_CONFIG)

Only what reads the command line is imported here: the time from start to the first receipt is counted in milliseconds.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

EXIT_CONFIGURATION: Final = 78


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code of the process."""
    options = _parser().parse_args(arguments)
    if options.command == "standalone":
        return _standalone(options.config, options.data_dir, options.set)
    if options.command == "verify":
        return _verify(options.directory)
    return _version()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="magnetar", description="A light-weight, durable message broker that speaks the Apache Pulsar protocol."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    standalone = commands.add_parser("standalone", help="run a broker in the foreground until SIGTERM or SIGINT")
    standalone.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as key=value lines, Apache Pulsar's names"
    )
    standalone.add_argument(
        "--data-dir", metavar="DIR", help="where everything durable lives; short for --set dataDir=DIR"
    )
    standalone.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be repeated"
    )
    verify = commands.add_parser("verify", help="check a data directory offline; changes nothing")
    verify.add_argument("directory", type=Path, metavar="DIR")
    commands.add_parser("version", help="print the version")
    return parser


def _standalone(config: Path | None, data_dir: str | None, overrides: list[str]) -> int:
    from magnetar.broker.settings_loader import SettingsError, load_settings  # noqa: PLC0415 - not for `version`

    if data_dir is not None:
        overrides = [*overrides, f"dataDir={data_dir}"]
    try:
        settings = load_settings(config, os.environ, overrides, lambda text: _complain("warning", text))
    except SettingsError as e:
        for problem in e.problems:
            _complain("error", problem)
        return EXIT_CONFIGURATION
    except (OSError, UnicodeDecodeError) as e:
        _complain("error", f"cannot read {config}: {e}")
        return EXIT_CONFIGURATION
    return _run(settings)


def _run(settings: "Settings") -> int:
    """Run the broker on a loop of its own; uvloop where it exists."""
    import asyncio  # noqa: PLC0415 - not for `version`

    from magnetar.broker.broker import run  # noqa: PLC0415 - the broker itself

    try:
        import uvloop  # noqa: PLC0415 - optional: not on every platform
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(run(settings))


def _verify(directory: Path) -> int:
    from magnetar.storage.verify import verify_directory  # noqa: PLC0415 - only this command

    return verify_directory(directory, print)


def _version() -> int:
    from magnetar import __version__  # noqa: PLC0415 - only this command

    sys.stdout.write(f"magnetar {__version__}\n")
    return 0


def _complain(level: str, text: str) -> None:
    sys.stderr.write(f"magnetar: {level}: {text}\n")
