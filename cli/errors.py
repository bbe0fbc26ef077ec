"""Why a command ends without success. Each class carries its exit code; `exit_codes` lists all; each text names the
remedy.

CliError
├── CommandLineError    2   the command line is invalid
├── NotFoundError       66  a topic, subscription, context, data directory or image does not exist (EX_NOINPUT)
├── UnreachableError    69  no broker answers at the address, or not in time (EX_UNAVAILABLE)
├── BrokerFailedError   70  the broker failed (EX_SOFTWARE)
├── FileError           74  a file cannot be written or read (EX_IOERR)
├── ConflictError       75  the resource is in use, or its state does not allow the command now (EX_TEMPFAIL)
├── DeniedError         77  the broker refuses the credentials, or they lack the right (EX_NOPERM)
└── ConfigurationError  78  the context file, a token or a library cannot be used (EX_CONFIG)
"""

from __future__ import annotations

from typing import ClassVar


class CliError(Exception):
    """Root of this room's errors."""

    exit_code: ClassVar[int] = 70


class CommandLineError(CliError):
    """The command line itself is wrong."""

    exit_code = 2


class NotFoundError(CliError):
    """The subject of the command does not exist."""

    exit_code = 66


class UnreachableError(CliError):
    """No broker answers at the address, or not in time."""

    exit_code = 69


class BrokerFailedError(CliError):
    """The broker failed, or its answer is invalid."""

    exit_code = 70


class FileError(CliError):
    """A file cannot be written or read, or does not exist."""

    exit_code = 74


class ConflictError(CliError):
    """The resource is in use, or its state does not allow the command now."""

    exit_code = 75


class DeniedError(CliError):
    """The broker refuses the credentials, or they lack the right."""

    exit_code = 77


class ConfigurationError(CliError):
    """The context file, a token or a library cannot be used."""

    exit_code = 78
