"""Topic compaction as the topic and the admin API see it: one run at a time, its status and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.admin.api import CompactionStats, CompactionStatus

if TYPE_CHECKING:
    from magnetar.broker.topic import Topic


class TopicCompaction:
    """Compaction of one topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def status(self) -> CompactionStatus:
        return CompactionStatus()

    def stats(self) -> CompactionStats:
        return CompactionStats()

    def start(self) -> bool:
        return True

    def start_if_needed(self) -> None:
        pass

    def ledger_json(self) -> dict[str, object]:
        return {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}
