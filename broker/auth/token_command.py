"""`magnetar tokens`: a secret key for the broker, and tokens of roles signed with it.

Keys and tokens are those of `pulsar tokens`: each program accepts keys and tokens of the other.
"""

import base64
import os
import secrets
import stat
import sys
import time
from typing import TYPE_CHECKING, Final

from joserfc import jwt

from magnetar.broker.auth.token import secret_key

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_KEY_BYTES: Final = 32
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}


def duration_s(text: str) -> int:
    """Seconds of `90s`, `15m`, `12h`, `30d`, `2w`, `1y`; a number alone is seconds. Raises ValueError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNIT_S else (text, "s")
    if not number.isascii() or not number.isdigit() or int(number) == 0:
        raise ValueError(f"{text!r} is no duration; write 12h, 30d or 1y")
    return int(number) * _UNIT_S[unit]


def create_secret_key(output: str | None, *, as_base64: bool) -> None:
    """Write a new random key to a file that only its owner may read, or to standard output.

    Raises: FileExistsError: a key that is there is never written over; OSError.
    """
    raw = secrets.token_bytes(_KEY_BYTES)
    key = base64.b64encode(raw) if as_base64 else raw
    if output is None:
        sys.stdout.buffer.write(key)
        sys.stdout.buffer.flush()
        return
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
    except OSError as error:
        os.unlink(output)  # noqa: PTH108 - as it was opened
        raise OSError(error.errno, error.strerror, output) from error


def create_token(key_text: str, subject: str, expires_in: str | None, now_s: "Callable[[], float]" = time.time) -> str:
    """A token of role `subject`, signed with HMAC-SHA256 by the key that `key_text` names as tokenSecretKey does.

    Raises: ValueError when the key, the role or the duration cannot be used.
    """
    if not subject.strip():
        raise ValueError("the role of a token cannot be empty")
    key, _ = secret_key(key_text)
    claims: dict[str, str | int] = {"sub": subject}
    if expires_in is not None:
        claims["exp"] = int(now_s()) + duration_s(expires_in)
    return jwt.encode({"alg": "HS256"}, claims, key)


def add_arguments(group: "argparse.ArgumentParser") -> None:
    """The actions of `magnetar tokens`."""
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "make a random key for tokenSecretKey"
    key = actions.add_parser("create-secret-key", help=text, description=f"{text.capitalize()}.")
    key.add_argument("--output", metavar="FILE", help="a new file; without it the key goes to standard output")
    key.add_argument("--base64", action="store_true", help="as text instead of bytes, for an environment variable")
    text = "make the token of a role"
    token = actions.add_parser("create", help=text, description=f"{text.capitalize()}; it goes to standard output.")
    token.add_argument(
        "--secret-key",
        required=True,
        metavar="KEY",
        help="as in tokenSecretKey: file:///PATH, a path, env:NAME or data:;base64,KEY",
    )
    token.add_argument("--subject", required=True, metavar="ROLE", help="the role that its bearer has")
    token.add_argument("--expiry-time", metavar="TIME", help="from now on: 12h, 30d, 1y (default: never)")


def output_is_readable() -> bool:
    """Whether standard output is a file that other users can read: a shell makes such files under the usual umask."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except OSError:  # another object took the place of the file
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def run_tokens(options: "argparse.Namespace") -> None:
    """Run the command. Raises: ValueError, OSError."""
    if options.action == "create-secret-key":
        create_secret_key(options.output, as_base64=options.base64)
    else:
        sys.stdout.write(create_token(options.secret_key, options.subject, options.expiry_time) + "\n")
