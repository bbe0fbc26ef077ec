"""docs/admin.md names what is there."""

import re
from pathlib import Path

from magnetar.broker.admin.app import all_routes

PAGE = (Path(__file__).parents[3] / "docs" / "admin.md").read_text(encoding="utf-8")


def test_public_routes_of_the_page_are_those_of_the_table():
    row = next(line for line in PAGE.splitlines() if line.startswith("| everybody |"))
    named = set(re.findall(r"`(/?[a-z/]+)`", row))
    assert named == {"brokers/ready", "brokers/version", "/status", "/metrics"}


def test_every_kind_of_route_is_on_the_page():
    last_words = {row.path.rstrip("/").rpartition("/")[2] for row in all_routes()}
    for word in (
        "internalStats",
        "partitioned-stats",
        "analyzeBacklog",
        "examinemessage",
        "lastMessageId",
        "terminate",
        "leaderBroker",
    ):
        assert word in last_words
        assert word in PAGE
