"""`magnetar tokens`: the broker accepts its keys and tokens."""

import asyncio
import base64
import dataclasses
import io
import os

import pytest

from magnetar.broker import cli
from magnetar.broker.auth import token_command
from magnetar.broker.auth.authenticator import AuthenticationFailedError, Authenticator
from magnetar.broker.auth.token_command import create_token, duration_s
from magnetar.broker.settings import Settings

KEY = "data:;base64," + base64.b64encode(bytes(range(32))).decode()
NOW_S = 1_700_000_000


def authenticate(token, key=KEY, now_s=NOW_S):
    settings = dataclasses.replace(
        Settings(), authentication_enabled=True, authentication_providers=("token",), token_secret_key=key
    )
    return asyncio.run(Authenticator(settings, lambda: now_s * 1000).authenticate("token", token.encode()))


def test_a_new_key_and_a_token_of_it(tmp_path, capsys):
    file = tmp_path / "secret.key"
    assert cli.main(["tokens", "create-secret-key", "--output", str(file)]) == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(file.read_bytes()) == 32
    assert cli.main(["tokens", "create", "--secret-key", f"file://{file}", "--subject", "admin"]) == 0
    token = capsys.readouterr().out.strip()
    found = authenticate(token, f"file://{file}")
    assert (found.role, found.expires_ms) == ("admin", None)


def test_the_setting_accepts_a_key_as_text(tmp_path):
    file = tmp_path / "text"
    assert cli.main(["tokens", "create-secret-key", "--base64", "--output", str(file)]) == 0
    key = file.read_text()
    assert authenticate(create_token(key, "a", None), key).role == "a"


def test_a_token_expires():
    token = create_token(KEY, "a", "1h", lambda: NOW_S)
    assert authenticate(token).expires_ms == (NOW_S + 3600) * 1000
    with pytest.raises(AuthenticationFailedError):
        authenticate(token, now_s=NOW_S + 3601)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("12h", 43_200), ("3d", 259_200), ("1y", 31_536_000)]
)
def test_durations(text, seconds):
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "0d", "-1d", "1.5h", "2 d", "1month"])
def test_invalid_durations(text):
    with pytest.raises(ValueError, match="no duration"):
        duration_s(text)


@pytest.mark.parametrize(("mode", "warns"), [(0o644, True), (0o600, False)])
@pytest.mark.parametrize("action", [["create-secret-key"], ["create", "--secret-key", KEY, "--subject", "a"]])
def test_an_output_file_that_other_users_can_read_has_a_warning(tmp_path, monkeypatch, capsys, action, mode, warns):
    file = tmp_path / "redirected"
    file.touch()
    file.chmod(mode)
    with file.open("w") as output:
        monkeypatch.setattr("sys.stdout", output)
        assert cli.main(["tokens", *action]) == 0
    assert ("every user of this machine can read the file" in capsys.readouterr().err) is warns


def test_a_key_that_is_there_is_not_written_over(tmp_path, capsys):
    file = tmp_path / "secret.key"
    file.write_text("mine")
    assert cli.main(["tokens", "create-secret-key", "--output", str(file)]) == cli.EXIT_SYSTEM
    assert file.read_text() == "mine"
    assert capsys.readouterr().err == f"magnetar: error: {file}: File exists\n"


def test_a_public_key_for_a_secret_key_is_named(tmp_path, capsys):
    file = tmp_path / "public.pem"
    file.write_text(f"-----BEGIN PUBLIC KEY-----\n{KEY}\n-----END PUBLIC KEY-----\n")
    assert cli.main(["tokens", "create", "--secret-key", str(file), "--subject", "a"]) == cli.EXIT_CONFIGURATION
    assert "--secret-key: a certificate or a key of a pair is no secret key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--secret-key", "file:///nowhere/key", "--subject", "a"], "--secret-key: "),
        (["--secret-key", "c2hvcnQ=", "--subject", "a"], "--secret-key: a key of at least 32 bytes"),
        (["--secret-key", KEY, "--subject", " "], "role of a token cannot be empty"),
        (["--secret-key", KEY, "--subject", "a", "--expiry-time", "soon"], "'soon' is no duration"),
    ],
)
def test_unusable_arguments_give_one_line_and_an_exit_code(arguments, words, capsys):
    assert cli.main(["tokens", "create", *arguments]) == cli.EXIT_CONFIGURATION
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_key_that_cannot_be_written_leaves_no_file(tmp_path, capsys, monkeypatch):
    """A full disk left an empty file, which the next attempt refused to replace."""

    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(28, "No space left on device")

    def opened(descriptor, _mode):
        os.close(descriptor)
        return Full()

    monkeypatch.setattr(token_command.os, "fdopen", opened)
    file = tmp_path / "secret.key"
    assert cli.main(["tokens", "create-secret-key", "--output", str(file)]) == cli.EXIT_SYSTEM
    assert capsys.readouterr().err == f"magnetar: error: {file}: No space left on device\n"
    assert not file.exists()
