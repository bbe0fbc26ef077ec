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
    "magnetar.protocol._acks",
    "magnetar.broker.dispatchers._picking",
    "magnetar.delayed._sorting",
    "magnetar.converters.kafka_entry._slots",
)


def run(*arguments: str) -> str:
    """Output of a `magnetar` command."""
    command = [sys.executable, "-m", "magnetar", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout  # noqa: S603


def main() -> None:
    """Raises what goes wrong."""
    place = Path(magnetar.__file__)
    assert "site-packages" in place.parts, f"not the installed package: {place}"
    missing = [name for name in COMPILED if importlib.util.find_spec(name) is None]
    assert run("version") == f"magnetar {magnetar.__version__}\n"
    with tempfile.TemporaryDirectory() as folder, magnetar.start(Path(folder, "data")) as broker:
        where = ("--url", broker.url, "--admin-url", broker.http_url)
        assert "1 messages stored" in run("produce", "t", "hello", *where)
        assert run("consume", "t", "-s", "s", "--from", "earliest", "-n", "1", *where) == "hello\n"
        assert "persistent://public/default/t" in run("topics", "list", *where)
        assert "persistent://public/default/t" in run(
            "admin", "--admin-url", broker.http_url, "topics", "list", "public/default"
        )
        broker.stop()
        assert run("verify", str(broker.data_dir)).startswith("intact")
    sys.stdout.write(f"magnetar {magnetar.__version__} works; not compiled: {', '.join(missing) or 'nothing'}\n")


if __name__ == "__main__":
    main()
