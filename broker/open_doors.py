"""Warns of valid settings that leave the broker more open than their author may expect: a sentence for each."""

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


def warnings_of_open_doors(settings: "Settings") -> list[str]:
    """The warnings for the operator at every start."""
    warnings = []
    if not settings.authentication_enabled:
        set_in_vain = [key for key, value in _of_authentication(settings).items() if value]
        if set_in_vain:
            warnings.append(
                f"{', '.join(set_in_vain)}: of no effect without authenticationEnabled=true; the broker is open"
            )
        if not _is_loopback(settings.bind_address):
            warnings.append(
                f"bindAddress={settings.bind_address} without authenticationEnabled=true: every client "
                "that reaches this address may read, write and delete everything"
            )
    elif not settings.authorization_enabled:
        warnings.append("authenticationEnabled=true without authorizationEnabled=true: every role may do everything")
    elif settings.anonymous_user_role and settings.anonymous_user_role in settings.super_user_roles:
        warnings.append("anonymousUserRole is one of superUserRoles: clients without credentials may do everything")
    return warnings


def _of_authentication(settings: "Settings") -> dict[str, object]:
    return {
        "authenticationProviders": settings.authentication_providers,
        "tokenSecretKey": settings.token_secret_key,
        "tokenPublicKey": settings.token_public_key,
        "basicAuthConf": settings.basic_auth_conf,
        "superUserRoles": settings.super_user_roles,
    }


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
