"""THE table of exit codes of this room's commands; docs/cli.md shows it, a test holds both and the errors together."""

from __future__ import annotations

from typing import Final

EXIT_CODES: Final[dict[int, str]] = {
    0: "done",
    1: "done, and the answer is no: `lag --above` found a larger backlog, `doctor` an error; "
    "any failure of `admin` and `client`, as of the programs they stand for",
    2: "the command line itself is wrong",
    66: "what the command names is not there: topic, subscription, context, file (EX_NOINPUT)",
    69: "no broker answers at the address, or not in time; the same command may work later (EX_UNAVAILABLE)",
    70: "the broker failed, its log says why (EX_SOFTWARE)",
    74: "a file cannot be read or written (EX_IOERR)",
    75: "in use, or in a state that does not allow this now (EX_TEMPFAIL)",
    77: "the broker refuses: credentials, or the right to this (EX_NOPERM)",
    78: "a context, a token or a library cannot be used (EX_CONFIG)",
    130: "interrupted with Ctrl-C",
    141: "what read the output has closed it",
}
