"""Sockets and their traffic: connections, TLS, back-pressure."""
