"""The routes of the fault kit, over a broker that nothing reaches."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from magnetar.testing.control import build_control
from magnetar.testing.rules import Rules


def status_of(method, path, body=None, query="", host="127.0.0.1"):
    kit = SimpleNamespace(rules=Rules(), cut=lambda number, topic: 0)
    app = build_control(SimpleNamespace(kit=kit))
    answers = []

    async def receive():
        return {"type": "http.request", "body": b"" if body is None else json.dumps(body).encode()}

    async def send(message):
        answers.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", host.encode())],
    }
    asyncio.run(app(scope, receive, send))
    return answers[0]["status"]


@pytest.mark.parametrize("query", ["id=x", "id=-1", "id=²", "id=1.5", "ids=1", "id=" + "9" * 5000])
def test_invalid_connection_ids_are_refused(query):
    assert status_of("DELETE", "/faults/connections", query=query) == 400


@pytest.mark.parametrize("number", ["9", "-1", "²", "9" * 5000])
def test_there_is_no_rule_of_such_a_number(number):
    """A number of 5,000 digits left a traceback in the log."""
    assert status_of("DELETE", f"/faults/rules/{number}") == 404


def test_a_connection_is_chosen_by_its_number():
    assert status_of("DELETE", "/faults/connections", query="id=7") == 200


@pytest.mark.parametrize("host", ["evil.example", "[", "[::1", "", "127.0.0.1.evil.example"])
def test_another_host_is_refused(host):
    assert status_of("GET", "/faults", host=host) == 403


@pytest.mark.parametrize(
    "rule",
    [
        {"action": "drop", "command": ["SEND"]},
        {"action": {}, "command": "SEND"},
        {"action": "reject", "command": "SEND", "error": []},
        {"action": "reject", "command": "SEND", "message": 5},
        {"action": "drop", "command": "SEND", "topic": 5},
    ],
)
def test_a_rule_of_wrong_types_is_refused(rule):
    assert status_of("POST", "/faults/rules", rule) == 400
