"""Why an import ends early. Each class carries the exit code of the process; its text says what to do.

ImportFailedError
├── DamageError            1   the file holds what cannot be imported, and nobody said to skip it
├── InputError            66   no file, no batches in it, not to be read (EX_NOINPUT)
├── UnreachableError      69   no broker, or it was away for too long: the same command goes on (EX_UNAVAILABLE)
├── RefusedError          77   the broker does not let us (EX_NOPERM)
└── DeduplicationError    78   without deduplication nothing can be promised (EX_CONFIG)

RetryError: passes by itself; becomes UnreachableError when it does not.
"""

from __future__ import annotations

from typing import ClassVar


class ImportFailedError(Exception):
    """Root: the import ends here."""

    exit_code: ClassVar[int] = 1


class DamageError(ImportFailedError):
    """A place in the file that cannot be imported."""


class InputError(ImportFailedError):
    """What was named on the command line cannot be read."""

    exit_code = 66


class UnreachableError(ImportFailedError):
    """The broker was away for longer than we wait."""

    exit_code = 69


class RefusedError(ImportFailedError):
    """The broker said no, and will say so again."""

    exit_code = 77


class DeduplicationError(ImportFailedError):
    """Deduplication is off, or cannot be asked about."""

    exit_code = 78


class RetryError(Exception):
    """The connection or the producer is gone, or the broker is busy: worth another attempt."""
