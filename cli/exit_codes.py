"""The only table of exit codes of this room's commands. A test compares it with docs/cli.md and with the errors."""

from __future__ import annotations

from typing import Final

EXIT_CODES: Final[dict[int, str]] = {
    0: "done",
    1: "done with a negative result: `lag --above` found a larger backlog, `doctor` found an error; any failure "
    "of `admin` and `client`, as in `pulsar-admin` and `pulsar-client`",
    2: "the command line is invalid",
    66: "a named topic, subscription, context, data directory or image does not exist (EX_NOINPUT)",
    69: "no broker answers at the address, or none with a trusted certificate, or not in time (EX_UNAVAILABLE)",
    70: "the broker failed; its log has the reason (EX_SOFTWARE)",
    74: "a file cannot be read or written, or does not exist (EX_IOERR)",
    75: "the resource is in use, or its state forbids the action now (EX_TEMPFAIL)",
    77: "the broker refuses the credentials, or the role lacks the right (EX_NOPERM)",
    78: "a context, a token or a library cannot be used (EX_CONFIG)",
    130: "interrupted with Ctrl-C",
    141: "the reader of the output closed it",
}
