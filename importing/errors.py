"""Why an import ends early, beyond the errors of the client. Each class carries the exit code of the process.

ClientError (magnetar.client.errors: InputError 66, RefusedError 77, DeduplicationError 78, RetryError)
└── ImportFailedError
    ├── DamageError            1   the file has damage, and the command was not to skip it
    ├── OpenTransactionError  75   the rest waits for the end of a transaction: the same command goes on (EX_TEMPFAIL)
    └── UnreachableError      69   no broker, or it was away for too long: the same command goes on (EX_UNAVAILABLE)
"""

from __future__ import annotations

from magnetar.client.errors import ClientError


class ImportFailedError(ClientError):
    """Root: the import ends here."""


class DamageError(ImportFailedError):
    """A place in the file that cannot be imported."""


class OpenTransactionError(ImportFailedError):
    """The file ends inside a transaction: whether its records count is not decided yet."""

    exit_code = 75


class UnreachableError(ImportFailedError):
    """The broker was away for longer than the import waits."""

    exit_code = 69
