"""TLS of a test client."""

from __future__ import annotations

import ssl


def trusting(authority: str) -> ssl.SSLContext:
    """A context that trusts the authority in this PEM file, and its certificates however few extensions they have:
    ``ssl.create_default_context`` refuses many of them from Python 3.13 on.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority)
    return context
