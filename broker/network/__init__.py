"""Sockets and what comes over them: connections, TLS, back-pressure."""
