"""Who a client is (`authenticator`) and what it may do (`authorizer`), for the binary protocol and HTTP alike.

Libraries for tokens and passwords are imported when a provider that needs them is configured.
"""
