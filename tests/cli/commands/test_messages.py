"""The requests of `peek`; tests/blackbox/test_cli.py sends and shows messages of a broker."""

import pytest

from magnetar.cli import session
from magnetar.cli.errors import NotFoundError
from magnetar.cli.main import main

TOPIC = "/admin/v2/persistent/public/default/t"


class Web:
    """The admin API of a broker whose topic has the subscription `s` without a backlog. As in Apache Pulsar, a request
    for a message of a missing subscription creates the subscription.
    """

    def __init__(self, _target):
        self.subscriptions = ["s"]

    def get(self, path):
        assert path == f"{TOPIC}/subscriptions"
        return list(self.subscriptions)

    def fetch(self, method, path):
        name = path.removeprefix(f"{TOPIC}/subscription/").partition("/")[0]
        self.subscriptions += [name] if name not in self.subscriptions else []
        raise NotFoundError(f"{method} {path}: Message not found")


@pytest.fixture
def web(monkeypatch):
    found = Web(None)
    monkeypatch.setattr(session, "Web", lambda _target: found)
    return found


def test_peek_at_a_missing_subscription_creates_no_subscription(web, capsys):
    assert main(["peek", "t", "misspelt"]) == 66
    assert "has no subscription 'misspelt'" in capsys.readouterr().err
    assert web.subscriptions == ["s"]


def test_peek_at_an_empty_backlog(web, capsys):
    assert main(["peek", "t", "s"]) == 0
    assert capsys.readouterr().err == "no message waits\n"
