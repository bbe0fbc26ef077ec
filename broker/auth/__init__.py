"""Identity (`authenticator`) and rights (`authorizer`) of clients, for the binary protocol and HTTP alike.

Libraries for tokens and passwords are imported when a provider that needs them is configured.
"""
