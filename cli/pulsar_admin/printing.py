"""How pulsar-admin prints an answer. Pure: values of the verb, body of the answer -> text.

JSON is indented as Jackson does it (`"key" : value`, short arrays on one line) unless a verb of pulsar-admin prints
with Gson (`"key": value`); lists have a name on each line; maps are printed as `key    value`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.errors import BrokerFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.cli.pulsar_admin.verb import Values


def parsed(answer: bytes) -> Any:
    """Return the parsed JSON of an answer, None for an empty answer. Raises: BrokerFailedError for invalid JSON."""
    if not answer.strip():
        return None
    try:
        return json.loads(answer)
    except ValueError:
        raise BrokerFailedError(f"the broker's answer is no JSON: {answer[:200]!r}") from None


def jackson(value: Any, indent: str = "") -> str:
    """Return JSON in the form of Jackson's default pretty printer."""
    inner = indent + "  "
    if isinstance(value, dict):
        if not value:
            return "{ }"
        fields = (
            f"{inner}{json.dumps(key, ensure_ascii=False)} : {jackson(each, inner)}" for key, each in value.items()
        )
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list):
        return f"[ {', '.join(jackson(each, indent) for each in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)


def gson(value: Any, indent: int = 2) -> str:
    """Return JSON in the form of Gson's pretty printer."""
    return json.dumps(value, indent=indent, ensure_ascii=False)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def java(value: Any) -> str:
    """A value as Java's toString writes it: sets and lists as [a, b], truth values in lower case."""
    if isinstance(value, list):
        return f"[{', '.join(java(each) for each in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={java(each)}" for key, each in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


def _line(text: str) -> str:
    return text + "\n"


def lines(items: Any) -> str:
    return "".join(f"{each}\n" for each in items or ())


def table(items: Any) -> str:
    """Return one line `key    value` per pair."""
    return "".join(f"{key}    {java(value)}\n" for key, value in (items or {}).items())


def message_id(answer: Any) -> Any:
    """MessageIdImpl as the Java client shows it."""
    return {"batchSize": 0, "batchIndex": -1, **answer} if answer else answer


def _message_id_text(answer: Any) -> str:
    parts = (answer or {}).get("ledgerId"), (answer or {}).get("entryId"), (answer or {}).get("partitionIndex", -1)
    return ":".join(map(str, parts)) if answer else "null"


def _message_id_of_time(values: Values, answer: bytes) -> str:
    found = parsed(answer)
    if found is None:
        return f"Cannot find any messages based on timestamp {values['datetime']}\n"
    return _line(jackson(_ordered(found)))


def _ordered(found: Any) -> Any:
    shown = {key: found.get(key, -1) for key in ("ledgerId", "entryId", "partitionIndex")}
    return shown | {"batchSize": found.get("batchSize", 0), "batchIndex": found.get("batchIndex", -1)}


def _terminated_all(values: Values, answer: bytes) -> str:
    found = parsed(answer) or {}
    return "".join(
        f"Topic {values['topic']}-partition-{index} successfully terminated at {_message_id_text(place)}\n"
        for index, place in sorted(found.items(), key=lambda item: int(item[0]))
    )


def _quotas(answer: bytes) -> str:
    found = parsed(answer) or {}
    return table({kind: f"BacklogQuotaImpl({_fields(each)})" for kind, each in found.items()})


def _fields(quota: dict[str, Any]) -> str:
    """Return the fields in Java's order. A broker may leave out the old field `limit`, which equals limitSize."""
    shown = {"limit": quota.get("limit", quota.get("limitSize", 0)), **quota}
    order = ("limit", "limitSize", "limitTime", "policy")
    return ", ".join(f"{name}={java(shown.get(name))}" for name in order)


def _ownership(answer: bytes) -> str:
    found = parsed(answer) or {}
    order = ("broker_assignment", "is_controlled", "is_active")
    return table({bundle: "[" + " ".join(f"{k}={java(v.get(k))}" for k in order) + "]" for bundle, v in found.items()})


def _domains(answer: bytes) -> str:
    found = parsed(answer) or {}
    return table({name: f"FailureDomainImpl(brokers={java(each.get('brokers'))})" for name, each in found.items()})


def _autoupdate(answer: bytes) -> str:
    """Print the Java name of the strategy, which differs from its name in JSON."""
    return _line({"AutoUpdateDisabled": "AUTO_UPDATE_DISABLED"}.get(str(parsed(answer)), _upper(str(parsed(answer)))))


def _upper(text: str) -> str:
    """`BackwardTransitive` -> BACKWARD_TRANSITIVE."""
    return "".join(f"_{each}" if each.isupper() and index else each.upper() for index, each in enumerate(text))


def partitions(answer: bytes) -> str:
    return _line(jackson({"partitions": 0, "deleted": False} | (parsed(answer) or {})))


PRINTERS: Final[dict[str, Callable[[Values, bytes], str]]] = {
    "none": lambda _, __: "",
    "ok": lambda _, __: "ok\n",
    "json": lambda _, answer: _line(jackson(parsed(answer))),
    "gson": lambda _, answer: _line(gson(parsed(answer))),
    "compact_json": lambda _, answer: _line(compact(parsed(answer))),
    "plain": lambda _, answer: _line(java(parsed(answer))),
    "text": lambda _, answer: _line(answer.decode(errors="replace").strip()),
    "lines": lambda _, answer: lines(parsed(answer)),
    "map": lambda _, answer: table(parsed(answer)),
    "broker_url": lambda _, answer: _line(str((parsed(answer) or {}).get("brokerUrl"))),
    "partitions": lambda _, answer: partitions(answer),
    "terminated": lambda _, answer: f"Topic successfully terminated at {_message_id_text(parsed(answer))}\n",
    "terminated_all": _terminated_all,
    "compaction_started": lambda values, _: f"Topic compaction requested for {values['full_topic']}\n",
    "message_id": lambda _, answer: _line(jackson(_ordered(parsed(answer) or {}))),
    "message_id_of_time": _message_id_of_time,
    "quotas": lambda _, answer: _quotas(answer),
    "ownership": lambda _, answer: _ownership(answer),
    "domains": lambda _, answer: _domains(answer),
    "autoupdate": lambda _, answer: _autoupdate(answer),
}
