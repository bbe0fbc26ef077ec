"""Why an import ends early, beyond the errors of the client. Each class carries the exit code of the process.

ClientError (magnetar.client.errors: InputError 66, RefusedError 77, DeduplicationError 78, RetryError)
└── ImportFailedError
    ├── DamageError            1   damage without --on-damage skip, or offsets that do not ascend
    ├── OpenTransactionError  75   a transaction is open: run the same command when the file has its end (EX_TEMPFAIL)
    └── UnreachableError      69   no broker answered for too long: run the same command again (EX_UNAVAILABLE)
"""

from __future__ import annotations

from magnetar.client.errors import ClientError


class ImportFailedError(ClientError):
    """Root of the errors that end an import."""


class DamageError(ImportFailedError):
    """A part of the file cannot be imported: damage that is not skipped, or offsets that do not ascend."""


class OpenTransactionError(ImportFailedError):
    """The file ends inside a transaction, so it is not decided yet whether the records of that transaction count."""

    exit_code = 75


class UnreachableError(ImportFailedError):
    """The broker was unreachable for longer than the import waits."""

    exit_code = 69
