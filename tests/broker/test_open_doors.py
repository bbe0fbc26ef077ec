"""Warnings about settings that leave the broker open."""

import pytest

from magnetar.broker.open_doors import warnings_of_open_doors
from magnetar.broker.settings import Settings

PROVEN = {"authentication_enabled": True, "authorization_enabled": True, "authentication_providers": ("token",)}


def warnings(**settings):
    return warnings_of_open_doors(Settings(**settings))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_a_laptop_gets_no_warning(address):
    assert warnings(bind_address=address) == []
    assert warnings(**PROVEN, super_user_roles=("admin",), bind_address="0.0.0.0") == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "mq.example.org"])
def test_a_network_without_authentication(address):
    (text,) = warnings(bind_address=address)
    assert f"bindAddress={address} without authenticationEnabled=true" in text


def test_what_is_set_in_vain():
    (text,) = warnings(token_secret_key="s", super_user_roles=("admin",))
    assert text.startswith("tokenSecretKey, superUserRoles: of no effect without authenticationEnabled=true")
    assert "=s" not in text


def test_roles_that_may_do_everything():
    (text,) = warnings(**PROVEN | {"authorization_enabled": False})
    assert "every role may do everything" in text
    (text,) = warnings(**PROVEN, anonymous_user_role="any", super_user_roles=("any",))
    assert "anonymousUserRole is one of superUserRoles" in text
