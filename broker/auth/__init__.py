"""Who a client is (`authenticator`) and what it may do (`authorizer`), for the binary protocol and HTTP alike.

Libraries for tokens and passwords are imported when a provider that needs them is configured.
"""

from magnetar.broker.auth.authenticator import Authenticated, AuthenticationFailedError, Authenticator
from magnetar.broker.auth.authorizer import Authorizer, Identity

__all__ = ["Authenticated", "AuthenticationFailedError", "Authenticator", "Authorizer", "Identity"]
