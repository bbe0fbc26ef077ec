"""`magnetar tokens`: keys for the broker, and tokens of roles signed with them.

Actions, options, keys and tokens are those of `pulsar tokens` (4.2.4): each program accepts keys and tokens of the
other.
"""

import asyncio
import base64
import json
import os
import secrets
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joserfc import jws, jwt
from joserfc.errors import InvalidHeaderValueError, JoseError, MissingCritHeaderError
from joserfc.util import urlsafe_b64decode

from magnetar.broker.auth.claims import json_object
from magnetar.broker.auth.key_pair import PAIR_ALGORITHMS, create_key_pair, private_key, write_new
from magnetar.broker.auth.provider import AuthenticationFailedError
from magnetar.broker.auth.token import Key, TokenProvider, public_key, secret_key

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

_KEY_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_UNIT_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_VARIABLE: Final = "TOKEN"
_PARTS: Final = 3


class InvalidTokenError(Exception):
    """A text is no token, or the broker would refuse the token."""


def duration_s(text: str) -> int:
    """Seconds of `90s`, `15m`, `12h`, `30d`, `2w`, `1y`; a number alone is seconds. Raises ValueError."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNIT_S else (text, "s")
    if not number.isascii() or not number.isdigit() or int(number) == 0:
        raise ValueError(f"{text!r} is no duration; write 12h, 30d or 1y")
    return int(number) * _UNIT_S[unit]


def create_secret_key(output: str | None, *, as_base64: bool, algorithm: str = "HS256") -> None:
    """Write a new random key to a file that only its owner may read, or to standard output.

    Raises: FileExistsError: a key that is there is never written over; OSError.
    """
    raw = secrets.token_bytes(_KEY_BYTES[algorithm])
    key = base64.b64encode(raw) if as_base64 else raw
    if output is None:
        sys.stdout.buffer.write(key)
        sys.stdout.buffer.flush()
    else:
        write_new(output, key)


def create_token(
    key_text: str,
    subject: str,
    expires_in: str | None,
    now_s: "Callable[[], float]" = time.time,
    headers: "Mapping[str, str] | None" = None,
) -> str:
    """A token of role `subject`, signed with the key that `key_text` names as tokenSecretKey does, and with the
    strongest HMAC that the key is long enough for.

    Raises: ValueError when the key, the role or the duration cannot be used.
    """
    key, algorithms = secret_key(key_text)
    return _signed(key, algorithms[-1], _claims_of(subject, expires_in, now_s), headers)


def _claims_of(subject: str, expires_in: str | None, now_s: "Callable[[], float]") -> dict[str, str | int]:
    if not subject.strip():
        raise ValueError("the role of a token cannot be empty")
    _check_text("the role of a token", subject)
    claims: dict[str, str | int] = {"sub": subject}
    if expires_in is not None:
        claims["exp"] = int(now_s()) + duration_s(expires_in)
    return claims


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the command line in another encoding
        raise ValueError(f"{name} has to be text in UTF-8") from None


def _signed(key: Key, algorithm: str, claims: dict[str, str | int], headers: "Mapping[str, str] | None") -> str:
    try:
        registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
        return jwt.encode({**(headers or {}), "alg": algorithm}, claims, key, registry=registry)
    except (InvalidHeaderValueError, MissingCritHeaderError) as e:
        raise ValueError(f"--headers: {e}") from e
    except (JoseError, ValueError, TypeError) as e:
        raise ValueError(f"--signature-algorithm: the key signs no {algorithm} ({e})") from e


def contents(token: str) -> str:
    """Header and claims of a token as JSON, a line each, with `---` between them; the signature is not checked.

    Raises: InvalidTokenError: the text is no token.
    """
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise InvalidTokenError("the text is no token: three parts with dots between them are needed")
    try:
        found = [json_object(urlsafe_b64decode(part.encode())) for part in parts[:2]]
    except ValueError as e:
        raise InvalidTokenError("the text is no token: header and claims are no JSON objects in base64") from e
    return "\n---\n".join(map(_json, found))


async def validated(token: str, key: Key, algorithms: list[str]) -> str:
    """The claims of a token as JSON. Raises InvalidTokenError where the broker refuses the token with this key."""
    try:
        await TokenProvider(key, algorithms).authenticate(token.encode())
    except AuthenticationFailedError as e:
        raise InvalidTokenError(f"the broker refuses the token: {e}") from e
    return _json(json_object(urlsafe_b64decode(token.split(".")[1].encode())))


def _json(value: "Mapping[str, Any]") -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
        return json.dumps(value, separators=(",", ":"))
    return text


def add_arguments(group: "argparse.ArgumentParser") -> None:
    """The actions of `magnetar tokens`."""
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "make a random key for tokenSecretKey"
    key = actions.add_parser("create-secret-key", help=text, description=f"{_sentence(text)}.")
    _add_algorithm(key, tuple(_KEY_BYTES), "HS256", "the key is as long as the digest of this algorithm")
    key.add_argument("-o", "--output", metavar="FILE", help="a new file; without it the key goes to standard output")
    key.add_argument(
        "-b", "--base64", action="store_true", help="as text instead of bytes, for an environment variable"
    )
    text = "make a private key for tokens and the public key for tokenPublicKey"
    pair = actions.add_parser("create-key-pair", help=text, description=f"{_sentence(text)}, in DER form.")
    _add_algorithm(pair, PAIR_ALGORITHMS, "RS256", "of the tokens; the broker needs the same as tokenPublicAlg")
    pair.add_argument("--output-private-key", required=True, metavar="FILE", help="a new file, for its owner alone")
    pair.add_argument("--output-public-key", required=True, metavar="FILE", help="a new file")
    text = "make the token of a role"
    token = actions.add_parser("create", help=text, description=f"{_sentence(text)}; it goes to standard output.")
    keys = token.add_mutually_exclusive_group(required=True)
    _add_secret_key(keys)
    keys.add_argument("-pk", "--private-key", metavar="KEY", help="PEM or DER, in the same forms")
    _add_algorithm(token, PAIR_ALGORITHMS, "RS256", "of a private key; a secret key signs as its length allows")
    token.add_argument("-s", "--subject", required=True, metavar="ROLE", help="the role that its bearer has")
    token.add_argument("-e", "--expiry-time", metavar="TIME", help="from now on: 12h, 30d, 1y (default: never)")
    token.add_argument("-hs", "--headers", action="append", default=[], metavar="NAME=VALUE", help="a further header")
    text = "print header and claims of a token, without a check of its signature"
    _add_token(actions.add_parser("show", help=text, description=f"{_sentence(text)}."))
    text = "check a token as the broker does, and print its claims"
    check = actions.add_parser("validate", help=text, description=f"{_sentence(text)}.")
    _add_token(check)
    keys = check.add_mutually_exclusive_group(required=True)
    _add_secret_key(keys)
    keys.add_argument("-pk", "--public-key", metavar="KEY", help="as in tokenPublicKey: PEM or DER, in the same forms")
    _add_algorithm(check, PAIR_ALGORITHMS, "RS256", "of the public key, as in tokenPublicAlg")


def _sentence(text: str) -> str:
    """The text with a capital; names of settings keep theirs."""
    return text[0].upper() + text[1:]


def _add_algorithm(parser: "argparse.ArgumentParser", choices: tuple[str, ...], default: str, text: str) -> None:
    text = f"{text}: {', '.join(choices)} (default: {default})"
    parser.add_argument("-a", "--signature-algorithm", choices=choices, default=default, metavar="NAME", help=text)


def _add_secret_key(keys: "argparse._MutuallyExclusiveGroup") -> None:
    text = "as in tokenSecretKey: file:///PATH, a path, env:NAME or data:;base64,KEY"
    keys.add_argument("-sk", "--secret-key", metavar="KEY", help=text)


def _add_token(parser: "argparse.ArgumentParser") -> None:
    source = parser.add_mutually_exclusive_group()
    text = f"the token; without it and the two options the variable {_VARIABLE} of the environment"
    source.add_argument("token", nargs="?", metavar="TOKEN", help=text)
    source.add_argument("-f", "--token-file", metavar="FILE", help="a file with the token")
    source.add_argument("-i", "--stdin", action="store_true", help="read the token from standard input")


def _given_token(options: "argparse.Namespace") -> str:
    if options.token_file is not None:
        try:
            token = Path(options.token_file).read_text(errors="replace")
        except OSError as e:
            raise ValueError(f"--token-file: {options.token_file}: {e.strerror}") from e
    else:
        token = sys.stdin.read() if options.stdin else options.token or os.environ.get(_VARIABLE, "")
    if not token.strip():
        raise ValueError(f"a token is needed: an argument, --stdin, --token-file or the variable {_VARIABLE}")
    return str(token.strip())


def _given_headers(texts: list[str]) -> dict[str, str]:
    for text in texts:
        _check_text("--headers: a header", text)
    headers = dict(text.partition("=")[::2] for text in texts)
    if not all("=" in text for text in texts) or "" in headers or "alg" in headers:
        raise ValueError("--headers: write NAME=VALUE, with another name than alg")
    return headers


def output_is_readable() -> bool:
    """Whether standard output is a file that other users can read: a shell makes such files under the usual umask."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except OSError:  # another object took the place of the file
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)


def run_tokens(options: "argparse.Namespace") -> bool:
    """Run the command; return whether standard output has a secret. Raises: ValueError, InvalidTokenError, OSError."""
    match options.action:
        case "create-secret-key":
            create_secret_key(options.output, as_base64=options.base64, algorithm=options.signature_algorithm)
            return options.output is None
        case "create-key-pair":
            create_key_pair(options.signature_algorithm, options.output_private_key, options.output_public_key)
            return False
        case "create":
            sys.stdout.write(_created(options) + "\n")
        case "show":
            sys.stdout.write(contents(_given_token(options)) + "\n")
        case "validate":
            key: Key
            if options.secret_key is not None:
                key, algorithms = secret_key(options.secret_key)
            else:
                key, algorithms = public_key(options.public_key), [options.signature_algorithm]
            sys.stdout.write(asyncio.run(validated(_given_token(options), key, algorithms)) + "\n")
    return bool(options.action == "create")


def _created(options: "argparse.Namespace") -> str:
    headers = _given_headers(options.headers)
    if options.secret_key is not None:
        return create_token(options.secret_key, options.subject, options.expiry_time, headers=headers)
    key, algorithm = private_key(options.private_key), options.signature_algorithm
    return _signed(key, algorithm, _claims_of(options.subject, options.expiry_time, time.time), headers)
