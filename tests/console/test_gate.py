"""Where the console opens."""

import pytest

from magnetar.console.gate import is_open


@pytest.mark.parametrize(
    ("server", "opens"),
    [
        (("127.0.0.1", 8080), True),
        (("::1", 8080), True),
        (("::ffff:127.0.0.1", 8080), True),
        (("10.0.0.5", 8080), False),
        (("0.0.0.0", 8080), False),
        (("fe80::1%eth0", 8080), False),
        (("localhost", 8080), False),
        (("", None), False),
        (None, False),
    ],
)
def test_without_authentication_loopback_addresses_alone(server, opens):
    assert is_open({"server": server}, authentication_enabled=False) is opens
    assert is_open({"server": server}, authentication_enabled=True)
