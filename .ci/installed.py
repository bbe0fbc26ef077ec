"""Tries an installed package in an empty environment: a broker starts, takes messages, stops; the commands answer."""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import magnetar

COMPILED = (
    "magnetar.protocol._speedups",
    "magnetar.protocol._entry_columns",
    "magnetar.protocol._deliveries",
    "magnetar.protocol._acks",
    "magnetar.protocol._key_hashes",
    "magnetar.broker.dispatchers._picking",
    "magnetar.bookkeeper.wire._add_frames",
    "magnetar.storage.embedded._direct_reader",
    "magnetar.storage.embedded.journal._frame_writer",
    "magnetar.converters.kafka_entry._slots",
    "magnetar.delayed._sorting",
)


def run(*arguments: str) -> str:
    """Output of a `magnetar` command."""
    command = [sys.executable, "-m", "magnetar", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout  # noqa: S603


def try_commands(folder: Path) -> None:
    """A broker on a new directory in the folder takes and gives a message; its stopped directory is intact."""
    with magnetar.start(folder / "data") as broker:
        where = ("--url", broker.url, "--admin-url", broker.http_url)
        assert "1 message stored" in run("produce", "t", "hello", *where)
        assert run("consume", "t", "-s", "s", "--from", "earliest", "-n", "1", *where) == "hello\n"
        assert "persistent://public/default/t" in run("topics", "list", *where)
        assert "persistent://public/default/t" in run(
            "admin", "--admin-url", broker.http_url, "topics", "list", "public/default"
        )
        broker.stop()
        assert run("verify", str(broker.data_dir)).startswith("intact")


def main() -> None:
    """Raises what goes wrong."""
    place = Path(magnetar.__file__)
    assert "site-packages" in place.parts, f"not the installed package: {place}"
    missing = [name for name in COMPILED if importlib.util.find_spec(name) is None]
    assert run("version") == f"magnetar {magnetar.__version__}\n"
    with tempfile.TemporaryDirectory() as folder:
        try_commands(Path(folder))
    sys.stdout.write(f"magnetar {magnetar.__version__} works; not compiled: {', '.join(missing) or 'nothing'}\n")


if __name__ == "__main__":
    main()
