"""The texts that commands make out of the answers of the broker."""

import pytest

from magnetar.cli.commands.resources import oldest_unacknowledged


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
