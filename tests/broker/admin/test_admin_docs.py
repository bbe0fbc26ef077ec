"""docs/admin.md names the existing routes."""

import re
from pathlib import Path

from magnetar.broker.admin.app import all_routes
from magnetar.broker.auth.table import PROBE

PAGE = (Path(__file__).parents[3] / "docs" / "admin.md").read_text(encoding="utf-8")


def test_public_routes_of_the_page_are_those_of_the_table():
    rows = [line for line in PAGE.splitlines() if line.startswith(("| every client,", "| every role,"))]
    named = {path.removeprefix("/admin/v2/") for path in re.findall(r"`(/?[a-z/]+)`", "".join(rows))}
    probes = {row.path.removeprefix("/admin/v2/") for row in all_routes() if row.need is PROBE}
    assert named == probes - {"/status.html", "/metrics/"} | {"brokers/version"}


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
