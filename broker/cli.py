"""The command line: `magnetar standalone`, `broker`, `initialize-cluster-metadata`, `verify DIR`, `tokens`,
`kafka import FILE`, `version`.

Exit codes:
    0   clean stop; a directory without damage; a file imported whole
    1   `verify` found damage; `kafka import` stopped at damage in the file
    2   the command line itself is wrong
    65  the metadata of the data directory are damaged or missing: put back a copy, or repair them (EX_DATAERR)
    66  a file to import cannot be read or holds no record batch (EX_NOINPUT)
    69  no broker to import into, or not for long enough; the same command goes on. ZooKeeper or the bookies of a
        cluster do not answer (EX_UNAVAILABLE)
    70  a stop did not end in time, or the system refuses memory: the process ended itself (EX_SOFTWARE)
    71  a port cannot be bound, a certificate cannot be read, a key cannot be written (EX_OSERR)
    74  storage failed or cannot be opened: nothing was acknowledged that is not on disk (EX_IOERR)
    75  the data directory is in use by another broker; the rest of an import waits for the end of a Kafka transaction
        (EX_TEMPFAIL)
    77  the broker refuses the import (EX_NOPERM)
    78  a setting, key or file of a token cannot be used; the topic does not deduplicate (EX_CONFIG)
    130 an import was interrupted; the same command goes on. A broker that is interrupted while it recovers, or twice,
        and `verify` end by the signal itself, which a shell shows as 130

This module imports only modules that read the command line, because its imports delay the start.
"""

import argparse
import contextlib
import errno
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar import __version__

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from magnetar.broker.setting_areas.older_names import OlderName
    from magnetar.broker.settings import Settings

    Runner = Callable[[Settings], Coroutine[Any, Any, int]]

_PROGRESS_S: Final = 0.2
EXIT_DAMAGED: Final = 1
EXIT_METADATA: Final = 65
EXIT_UNAVAILABLE: Final = 69
EXIT_SYSTEM: Final = 71
EXIT_STORAGE: Final = 74
EXIT_IN_USE: Final = 75
EXIT_CONFIGURATION: Final = 78
_KAZOO: Final = "pip install '/path/to/magnetar[bookkeeper]'"


def main(
    arguments: Sequence[str] | None = None,
    *,
    further: Mapping[str, str] | None = None,
    with_faults: "Runner | None" = None,
) -> int:
    """Run the command line; returns the exit code of the process.

    Args:    further: commands of other programs, with their descriptions, for the help.
             with_faults: runs a broker whose settings ask for the fault kit, which stands above the broker.
    """
    given = sys.argv[1:] if arguments is None else arguments
    parser = build_parser(given, further or {})
    options, unknown = parser.parse_known_args(given)
    if options.command == "initialize-cluster-metadata":
        _require_kazoo()
    if unknown:  # the usage that helps is that of the command, not the list of commands
        getattr(options, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command == "kafka":
        return _kafka_import(options)
    if options.command == "tokens":
        return _tokens(options)
    if options.command == "initialize-cluster-metadata":
        from magnetar.broker.clustering.initialize import run_initialize  # noqa: PLC0415 - only this command

        return run_initialize(options)
    with _ended_by_interrupt():
        if options.command == "standalone":
            if options.pulsar_config is not None:
                options.set.insert(0, "unknownSettings=list")
            return _standalone(options.config or options.pulsar_config, options, with_faults)
        if options.command == "broker":
            return _member(options)
        if options.command == "verify":
            return _verify(options.directory, options.repair, as_json=options.json)
    sys.stdout.write(f"magnetar {__version__}\n")
    return 0


@contextlib.contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """Ctrl-C ends the process at once and without a traceback, until the broker takes signals into its own hands."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _path(text: str) -> Path:
    """Convert an argument to a path. An empty text, such as an unset variable of a shell, would be this directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def build_parser(arguments: Sequence[str], further: Mapping[str, str]) -> argparse.ArgumentParser:
    """The parser of all commands; those of commands with modules of their own have options where `arguments` has their
    name.
    """
    parser = argparse.ArgumentParser(
        prog="magnetar", description="A light-weight, durable message broker that speaks the Apache Pulsar protocol."
    )
    parser.add_argument("--version", action="version", version=f"magnetar {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    standalone = commands.add_parser(
        "standalone",
        help="run a broker in the foreground until SIGTERM or SIGINT",
        description="Run a broker in the foreground until SIGTERM or SIGINT (Ctrl-C). When it takes clients it prints "
        '"magnetar ready SERVICE_URL HTTP_URL" on standard output; its log goes to standard error.',
        epilog="Settings have the names of Apache Pulsar's broker.conf. --set beats PULSAR_PREFIX_<key> in the "
        "environment, which beats the file. Example: magnetar standalone --data-dir /var/lib/magnetar "
        "--set bindAddress=0.0.0.0 --set advertisedAddress=mq.example.org",
    )
    standalone.set_defaults(parser=standalone)
    files = standalone.add_mutually_exclusive_group()
    files.add_argument("--config", type=_path, metavar="FILE", help="settings as key=value lines, Pulsar's names")
    files.add_argument(
        "--pulsar-config",
        type=_path,
        metavar="FILE",
        help="the same, of any version of Apache Pulsar: keys that are not known here are listed, not refused",
    )
    _add_cluster(commands, with_options="initialize-cluster-metadata" in arguments)
    standalone.add_argument("--data-dir", type=_path, metavar="DIR", help="where all that lasts lives: dataDir")
    standalone.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; repeatable")
    standalone.add_argument(
        "--check",
        action="store_true",
        help="check the settings, the files, the data directory and the address that they name, and report errors, "
        "without a start",
    )
    standalone.add_argument(
        "--stop-with-stdin",
        action="store_true",
        help="stop, as with SIGTERM, when standard input ends: with the program that holds the other end of the pipe",
    )
    _add_verify(commands)
    tokens = commands.add_parser("tokens", help="make keys and tokens for authentication")
    if "tokens" in arguments:
        from magnetar.broker.auth.token_command import add_arguments  # noqa: PLC0415 - only this command

        add_arguments(tokens)
    _add_kafka(commands, with_options="kafka" in arguments)
    commands.add_parser("pipeline", add_help=False, help="jobs over the log: export, audit, statistics, replay")
    commands.add_parser("version", help="print the version")
    for name, text in further.items():
        commands.add_parser(name, add_help=False, help=text)
    return parser


# --- standalone -------------------------------------------------------------------------------------------------


def _standalone(config: Path | None, options: argparse.Namespace, with_faults: "Runner | None") -> int:
    overrides: list[str] = options.set
    if options.data_dir is not None:
        overrides = [*overrides, f"dataDir={options.data_dir}"]
    settings = _settings(config, overrides, {})
    if isinstance(settings, int):
        return settings
    if settings.metadata_store_url:
        _complain("warning", "metadataStoreUrl has no effect here: `magnetar broker` is the member of a cluster")
    if options.check:
        return _check(settings)
    if options.stop_with_stdin:
        from magnetar.broker.standard_input import stop_with_input  # noqa: PLC0415 - only where asked for

        stop_with_input()
    return _run(settings, with_faults)


def _check(settings: "Settings") -> int:
    """Print the addresses, and a line for each file, class, address and directory that a start would refuse."""
    from magnetar.broker.start_checks import print_addresses, problems_of_a_start  # noqa: PLC0415 - only here

    print_addresses(settings)
    problems = problems_of_a_start(settings)
    for problem in problems:
        _complain("error", problem)
    return EXIT_CONFIGURATION if problems else 0


def _settings(
    config: Path | None, overrides: list[str], defaults: "Mapping[str, str]", older_names: "Sequence[OlderName]" = ()
) -> "Settings | int":
    """The settings, or the exit code of a command that cannot use them."""
    # structlog draws tracebacks with rich where it finds it, and importing that is a third of the start-up. The modules
    # of the settings may load structlog, so the name is taken before all of them.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
    from magnetar.broker.settings_loader import SettingsError, load_settings  # noqa: PLC0415 - not for `version`

    def warn(text: str) -> None:
        _complain("warning", text)

    try:
        settings = load_settings(config, os.environ, overrides, warn, defaults, older_names)
    except SettingsError as e:
        for problem in e.problems:
            _complain("error", problem)
        return EXIT_CONFIGURATION
    from magnetar.broker.open_doors import (  # noqa: PLC0415 - not for `version`
        warnings_of_open_doors,
        warnings_of_readable_files,
    )

    for text in (*warnings_of_open_doors(settings), *warnings_of_readable_files(settings)):
        _complain("warning", text)
    return settings


def _run(settings: "Settings", with_faults: "Runner | None" = None, *, in_cluster: bool = False) -> int:
    """Run the broker on a new loop, uvloop's where it exists. An error that stops the start prints a line, no
    traceback.
    """
    import asyncio  # noqa: PLC0415 - not for `version`

    # Modules are no garbage: searching for some while they load is a tenth of the start-up. running.run ends this.
    gc.disable()
    from magnetar.broker.logs import configure_logs  # noqa: PLC0415 - the same
    from magnetar.broker.open_doors import OWNER_ONLY_UMASK  # noqa: PLC0415 - the same
    from magnetar.broker.running import run  # noqa: PLC0415 - the broker itself
    from magnetar.broker.shutdown import EXIT_NO_MEMORY  # noqa: PLC0415 - comes with it

    configure_logs()
    os.umask(OWNER_ONLY_UMASK)
    from magnetar.storage.errors import (  # noqa: PLC0415 - comes with it
        MetadataDamagedError,
        StorageError,
        StorageUnavailableError,
        StoreLockedError,
    )

    try:
        import uvloop  # noqa: PLC0415 - optional: not on every platform
    except ImportError:
        loop_factory = None
    else:
        loop_factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            if with_faults is not None and settings.fault_kit_port is not None:
                return runner.run(with_faults(settings))
            return runner.run(run(settings, in_cluster=in_cluster))
    except StoreLockedError as e:
        code, problem = EXIT_IN_USE, f"{e}: stop that process first, or set another dataDir"
    except MetadataDamagedError as e:
        code, problem = EXIT_METADATA, str(e)
    except StorageUnavailableError as e:
        code, problem = EXIT_UNAVAILABLE, str(e)
    except StorageError as e:
        where = settings.metadata_store_url if in_cluster else settings.data_dir
        code, problem = EXIT_STORAGE, str(e) if where in str(e) else f"{where}: {e}"
    except OSError as e:
        below = _is_below(settings.data_dir, e) and e.errno not in _REMEDIES
        code = EXIT_NO_MEMORY if e.errno == errno.ENOMEM else EXIT_STORAGE if below else EXIT_SYSTEM
        problem = _reason(e) + (_REMEDIES.get(e.errno or 0) or (_remedy(e, settings.data_dir) if below else ""))
    except ValueError as e:  # a provider, key or file named in the settings that cannot be used
        code, problem = EXIT_CONFIGURATION, str(e)
    finally:
        gc.enable()
    _complain("error", problem)
    return code


# --- cluster ----------------------------------------------------------------------------------------------------


def _add_cluster(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, with_options: bool) -> None:
    """`broker` and `initialize-cluster-metadata`."""
    member = commands.add_parser(
        "broker",
        help="run a broker of a cluster: metadata in ZooKeeper, messages in BookKeeper",
        description="Run a broker of a cluster in the foreground until SIGTERM or SIGINT: it keeps metadata in the "
        "ZooKeeper and messages in the BookKeeper that all brokers of the cluster share, in Apache Pulsar's layout. "
        'When it takes clients it prints "magnetar ready SERVICE_URL HTTP_URL" on standard output.',
        epilog="Example: magnetar broker --config conf/broker.conf --set advertisedAddress=mq1.example.org",
    )
    member.set_defaults(parser=member)
    member.add_argument("--config", type=_path, metavar="FILE", help="broker.conf, with the keys of Apache Pulsar")
    member.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; repeatable")
    text = "write the initial metadata of a new cluster to ZooKeeper"
    whole = f"{text[0].upper()}{text[1:]}. Needs  {_KAZOO}."
    cluster = commands.add_parser("initialize-cluster-metadata", help=text, description=whole)
    cluster.set_defaults(parser=cluster)
    if with_options and _kazoo_is_installed():
        from magnetar.broker.clustering.initialize import add_arguments  # noqa: PLC0415 - only this command

        add_arguments(cluster)


def _kazoo_is_installed() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - only these commands

    return find_spec("kazoo") is not None


def _require_kazoo() -> None:
    """End the process with a remedy if the client of ZooKeeper is not installed."""
    if not _kazoo_is_installed():
        _complain("error", f"the client of ZooKeeper is not installed: {_KAZOO}")
        sys.exit(EXIT_CONFIGURATION)


def _member(options: argparse.Namespace) -> int:
    _require_kazoo()
    from magnetar.broker.clustering.cluster_settings import (  # noqa: PLC0415 - only this command
        CLUSTER_DEFAULTS,
        CLUSTER_OLDER_NAMES,
        cluster_services,
    )

    settings = _settings(options.config, options.set, CLUSTER_DEFAULTS, CLUSTER_OLDER_NAMES)
    if isinstance(settings, int):
        return settings
    try:
        cluster_services(settings)
    except ValueError as e:
        _complain("error", str(e))
        return EXIT_CONFIGURATION
    return _run(settings, in_cluster=True)


# --- kafka import -----------------------------------------------------------------------------------------------


def _add_verify(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `verify`."""
    text = "check the data directory of a stopped broker; changes nothing unless asked to"
    verify = commands.add_parser("verify", help=text, description=f"{text.capitalize()}.")
    verify.set_defaults(parser=verify)
    verify.add_argument("directory", type=_path, metavar="DIR")
    verify.add_argument("--json", action="store_true", help="print the report as JSON")
    verify.add_argument(
        "--repair",
        action="append",
        default=[],
        choices=["index", "metadata", "torn-tail"],
        help="repair this kind of finding; repeatable. Entries are never removed",
    )


def _add_kafka(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", *, with_options: bool) -> None:
    """Add the `kafka` group. Its options come with modules that no other command loads."""
    text = "bring Kafka log files into a topic, exactly once and resumable"
    group = commands.add_parser("kafka", help=text).add_subparsers(dest="action", required=True, metavar="ACTION")
    parser = group.add_parser("import", help=text, description=_IMPORT_DESCRIPTION)
    if with_options:
        from magnetar.importing.arguments import add_arguments  # noqa: PLC0415 - only this command

        add_arguments(parser)
    parser.set_defaults(parser=parser)


def _kafka_import(options: argparse.Namespace) -> int:
    from magnetar.importing.command import run_import  # noqa: PLC0415 - only this command

    return run_import(options)


_IMPORT_DESCRIPTION: Final = (
    "Store the record batches of a Kafka log segment, or of any file of concatenated batches (magic 0, 1, 2), as they "
    "are in a topic; the broker's Kafka converter gives their records to every Pulsar client. Each record is stored "
    "once, however often the command is interrupted and repeated: the broker's deduplication remembers how far the "
    "file is, so it must be on for the topic (--enable-deduplication)."
)


# --- tokens, verify and version ----------------------------------------------------------------------------------


def _tokens(options: argparse.Namespace) -> int:
    from magnetar.broker.auth import token_command  # noqa: PLC0415 - only this command

    try:
        if token_command.run_tokens(options) and token_command.output_is_readable():
            _complain("warning", "every user of this machine can read the file of the output; run chmod o-rwx on it")
    except token_command.InvalidTokenError as e:
        _complain("error", str(e))
        return EXIT_DAMAGED
    except ValueError as e:
        _complain("error", str(e).replace("tokenSecretKey", "--secret-key").replace("tokenPublicKey", "--public-key"))
        return EXIT_CONFIGURATION
    except OSError as e:
        if e.filename is None:  # standard output, as of any other command
            raise
        _complain("error", _reason(e))
        return EXIT_SYSTEM
    return 0


def _verify(directory: Path, repair: list[str], *, as_json: bool) -> int:
    from magnetar.storage.embedded.verify.command import verify_store  # noqa: PLC0415 - only this command
    from magnetar.storage.errors import StorageError, StoreLockedError  # noqa: PLC0415 - only this command

    rebuild = None
    if "metadata" in repair:
        from magnetar.broker.rebuilding import rebuild_records  # noqa: PLC0415 - only this repair

        rebuild = rebuild_records
    try:
        report = verify_store(str(directory), repair=repair, rebuild=rebuild, progress=_shown_progress())
    except StoreLockedError as e:
        _complain("error", f"{e}: stop the broker first, or verify a copy (`magnetar backup` makes one)")
        return EXIT_IN_USE
    except StorageError as e:
        _complain("error", str(e) if str(directory) in str(e) else f"{directory}: {e}")
        return EXIT_STORAGE
    except OSError as e:
        _complain("error", _reason(e))
        return EXIT_STORAGE
    if as_json:
        import json  # noqa: PLC0415 - only here

        sys.stdout.write(json.dumps(report.to_json(), indent=1) + "\n")
    else:
        sys.stdout.write(report.to_text())
    return EXIT_DAMAGED if report.damaged else 0


def _shown_progress() -> "Callable[[int, int], None] | None":
    """One line that is written anew, on a terminal and when the work takes longer than a second."""
    if not sys.stderr.isatty():
        return None
    begun, last = time.monotonic(), 0.0

    def show(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - begun >= 1 and now - last >= _PROGRESS_S:
            last = now
            sys.stderr.write(f"\r{100 * done // max(total, 1):3d} % of {total / 2**20:.0f} MiB read\x1b[K\r")
            sys.stderr.flush()

    return show


def _is_below(directory: str, error: OSError) -> bool:
    """Whether the error concerns the directory or a file below it."""
    return isinstance(error.filename, str) and Path(error.filename).is_relative_to(directory)


def _reason(error: OSError) -> str:
    """The text of the error, without its number."""
    return f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror or str(error)


def _complain(level: str, text: str) -> None:
    with contextlib.suppress(OSError):  # a full disk under the log must not change the exit code
        sys.stderr.write(f"magnetar: {level}: {text}\n")


_REMEDIES: Final = {
    errno.EFBIG: "; raise the limit of the size of files (ulimit -f, LimitFSIZE of the unit)",
    errno.EMFILE: "; raise the limit of open files (ulimit -n, LimitNOFILE of the unit)",
    errno.ENOMEM: "; raise the limits of memory and threads (ulimit -v, ulimit -u, MemoryMax and TasksMax of the unit)",
}
"""Ends of sentences about limits of the process, by error number."""


def _remedy(error: OSError, directory: str) -> str:
    """The end of a sentence about a data directory that cannot be used."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"; user {os.geteuid()} must have the right to write there"
    if error.errno == errno.ENOENT and not Path(directory).exists():  # for example below /proc
        return ": no directory can be made there; set another dataDir"
    if error.errno == errno.ENOENT and Path(error.filename).parent.is_dir():
        return ": the data directory is incomplete; put back the whole directory, by hand or by `magnetar restore`"
    if error.errno != errno.EEXIST:
        return ""
    is_link = Path(error.filename).is_symlink()
    return ", and is a link to a missing directory; make that directory" if is_link else ", and is no directory"
