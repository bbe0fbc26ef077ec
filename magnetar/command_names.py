"""The names of all commands and one line about each, for `--help` and completion; no start of a broker loads it."""

from __future__ import annotations

from typing import Final

BROKER_COMMANDS: Final = {
    "standalone": "run a broker in the foreground until SIGTERM or SIGINT",
    "broker": "run a broker of a cluster: metadata in ZooKeeper, messages in BookKeeper",
    "initialize-cluster-metadata": "write the initial metadata of a new cluster to ZooKeeper",
    "verify": "check the data directory of a stopped broker",
    "tokens": "make keys and tokens for authentication",
    "kafka": "bring Kafka log files into a topic",
    "pipeline": "jobs over the log: export, audit, statistics, replay",
    "version": "print the version",
}
CLI_COMMANDS: Final = {
    "topics": "list, create, show and delete topics",
    "subscriptions": "list, create, move and delete subscriptions",
    "namespaces": "list, create, show and delete namespaces",
    "tenants": "list, create and delete tenants",
    "permissions": "roles that may produce and consume",
    "schemas": "show and change schemas",
    "stats": "figures of a topic or a namespace",
    "lag": "how far subscriptions are behind",
    "produce": "send messages",
    "consume": "take messages of a subscription",
    "tail": "show published messages, without a subscription",
    "peek": "show the next messages of a subscription",
    "export": "the messages of a topic into JSON lines or Parquet",
    "backup": "take an image of a running broker's data",
    "restore": "make a data directory of an image",
    "doctor": "examine a broker, its disk and its settings",
    "context": "brokers by name",
    "completion": "completion for bash, zsh and fish",
    "admin": "the verbs and flags of pulsar-admin",
    "client": "produce, consume and read with the flags of pulsar-client",
}
COMPLETE_VARIABLE: Final = "_MAGNETAR_COMPLETE"
"""Set by a shell when it asks for completions."""


def no_such_command(name: str) -> str:
    """Return the error text for a first word that is neither a command nor an option of `magnetar` itself."""
    if name.startswith("-"):
        return f"options stand behind the command: magnetar COMMAND {name.partition('=')[0]} ..."
    import difflib  # noqa: PLC0415 - only after a mistake

    near = difflib.get_close_matches(name, [*BROKER_COMMANDS, *CLI_COMMANDS], 3)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return f"there is no command {name!r}.{hint} `magnetar --help` lists all"
