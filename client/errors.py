"""Errors of work with a broker. Each class carries the exit code of a command (sysexits); its text names the remedy.

ClientError
├── InputError   66   an address, a token or a file cannot be used (EX_NOINPUT)
├── RefusedError 77   the broker refuses, and will refuse again (EX_NOPERM)
├── DeduplicationError 78 deduplication is off, or its state cannot be read (EX_CONFIG)
└── RetryError   69   the connection or the producer is gone, or the broker is busy: worth another attempt
"""

from __future__ import annotations

from typing import ClassVar


class ClientError(Exception):
    """Root: the work ends here."""

    exit_code: ClassVar[int] = 1


class InputError(ClientError):
    """An address, a token or a file that the user gave cannot be used."""

    exit_code = 66


class RefusedError(ClientError):
    """The broker refuses the request, and will refuse its repetition."""

    exit_code = 77


class DeduplicationError(ClientError):
    """Deduplication is off, or its state cannot be read: a repetition could store messages twice."""

    exit_code = 78


class RetryError(ClientError):
    """The connection or the producer is gone, or the broker is busy: worth another attempt."""

    exit_code = 69
