"""The steady figures of a topic: changes of its statistics and internal statistics since the last look.

Rates, ages and addresses are left out, as are figures that depend on when a cursor was last written.
"""

import re

from harness.steps import rest

_MOMENT = range(10**12, 4 * 10**12)  # milliseconds of this time
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\S+")
_POSITION = re.compile(r"(?:(?<![\w.])|(?<=\.\.))(\d+):(-?\d+)\b")
_LEFT_OUT = {
    *("address", "connectedSince", "clientVersion", "ownerBroker", "appId", "oldestBacklogMessageAgeSeconds"),
    *(
        "nonContiguousDeletedMessagesRangesSerializedSize",
        "producerId",
        "blockedAttempts",
        "pulsar_subscription_last_acked_timestamp",
    ),
    *(
        "cursorLedger",
        "cursorLedgerLastEntry",
        "CompactedTopicLedger",
        "state",
        "lastLedgerSwitchTimestamp",
        "ledgerId",
    ),
    *("subscriptionHavePendingRead", "waitingReadOp", "pendingReadOps", "waitingCursorsCount"),
    *("oldestBacklogMessageSubscriptionName", "delayedMessageIndexSizeInBytes", "lastCompactionDurationTimeInMills"),
    *("lastLedgerCreatedTimestamp", "lastMarkDeleteAdvancedTimestamp", "durable", "replicated", "isDurable"),
}


def _flat(s, value, path=()):
    """Pairs of path and value for each figure that is not zero or empty."""
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in _LEFT_OUT:
                yield from _flat(s, value[key], (*path, s.neutral(key)))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for i, each in enumerate(sorted(value, key=_order)):
            yield from _flat(s, each, (*path, str(i)))
    elif value and not isinstance(value, float):
        yield ".".join(path), _steady(s, value)


def _order(row):
    return str(row.get("consumerName", "")), str(row.get("producerName", "")), row.get("ledgerId", -1)


def _steady(s, value):
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return "T" if value in _MOMENT else value
    if isinstance(value, str):
        return _POSITION.sub(lambda found: f"{_ledger(s, int(found[1]))}:{found[2]}", _DATE.sub("T", value))
    return value


def _ledger(s, ledger):
    return s.neutral({"ledgerId": ledger})["ledgerId"]


def _changes(s, kind, topic, what, found, without=()):
    """Note the figures that differ from those of the last look at the topic."""
    shown = {k: v for k, v in _flat(s, found) if k.rpartition(".")[2] not in without}
    looks = s.__dict__.setdefault("looks", {})
    before, looks[kind, topic] = looks.get((kind, topic), {}), shown
    changed = {k: v for k, v in shown.items() if before.get(k) != v}
    s.note(what, changed | {k: "gone" for k in before if k not in shown})


def figures(s, topic, what, without=()):
    """Note the changes of the topic's statistics, some figures left out by name."""
    status, found = s.http("GET", rest(topic, "/stats?getEarliestTimeInBacklog=true"), quietly=True)
    _changes(s, "stats", topic, what, found if status == 200 else {"status": status}, without)


def internal_figures(s, topic, what):
    """Note the changes of the topic's internal statistics."""
    status, found = s.http("GET", rest(topic, "/internalStats"), quietly=True)
    _changes(s, "internalStats", topic, what, found if status == 200 else {"status": status})
