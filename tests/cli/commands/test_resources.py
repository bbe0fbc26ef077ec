"""The texts that commands make out of the answers of the broker."""

import pytest

from magnetar.cli import session
from magnetar.cli.commands.resources import oldest_unacknowledged, one_line
from magnetar.cli.main import main


@pytest.mark.parametrize(
    ("age", "backlog", "shown"),
    [
        (42, 3, "42 s"),
        (90_000, 3, "90000 s"),
        (-1, 3, None),
        (0, 3, None),
        (None, 3, None),
        (42, 0, None),
    ],
)
def test_the_age_of_the_oldest_unacknowledged_message_where_the_broker_gives_an_age(age, backlog, shown):
    figures = {"subscriptions": {"s": {"msgBacklog": backlog}, "t": {"msgBacklog": 0}}}
    assert oldest_unacknowledged(figures if age is None else figures | {"oldestBacklogMessageAgeSeconds": age}) == shown


@pytest.mark.parametrize(
    ("definition", "shown"),
    [
        ('{\n "type": "récord",\n "fields": []\n}', '{"type": "récord", "fields": []}'),
        ("", ""),
        ("no JSON", "no JSON"),
        (None, None),
    ],
)
def test_the_definition_of_a_schema_for_people_is_one_line(definition, shown):
    assert one_line(definition) == shown


class NoWeb:
    """The admin API of a broker that gets no request."""

    def __init__(self, _target):
        pass

    def get(self, path):
        assert path.endswith("/partitions")
        return {"partitions": 0}


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["subscriptions", "skip", "t", "s", "2147483648"], "give a number of messages up to 2147483647, or all"),
        (["subscriptions", "skip", "t", "s", "\u00b2"], "give a number of messages"),
        (["subscriptions", "reset", "t", "s", "--to", "99999999999y"], "between 0 and 100y"),
        (["permissions", "grant", "public/default", "r", "produce", "bogus"], "'bogus' is no action"),
        (["schemas", "show", "t", "--version", "9223372036854775808"], "not in the range"),
        (["tail", "t", "--since", "-5s"], "between 0 and 100y"),
        (["consume", "t", "-s", "s", "--timeout", "-5s"], "between 0 and 100y"),
        (["produce", "t", "x", "--delay", "300000000y"], "between 0 and 100y"),
    ],
)
def test_values_out_of_range_are_refused_before_a_request(monkeypatch, capsys, command, reason):
    monkeypatch.setattr(session, "Web", NoWeb)
    assert main(command) == 2
    assert reason in capsys.readouterr().err


def test_a_schema_file_that_cannot_be_read(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(session, "Web", NoWeb)
    assert main(["schemas", "upload", "t", str(tmp_path / "none")]) == 74
    assert capsys.readouterr().err.endswith("none: No such file or directory\n")


def test_actions_with_a_comma_between_them_are_granted_singly(monkeypatch, capsys):
    sent = []

    class Granting(NoWeb):
        def call(self, method, path, value):
            sent.append((method, path, value))

    monkeypatch.setattr(session, "Web", Granting)
    assert main(["permissions", "grant", "public/default", "r", "produce,consume", "sinks"]) == 0
    path = "/admin/v2/namespaces/public/default/permissions/r"
    assert sent == [("POST", path, ["produce", "consume", "sinks"])]
    assert capsys.readouterr().out == "r may produce, consume, sinks on public/default\n"
