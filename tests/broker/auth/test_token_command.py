"""`magnetar tokens`: the broker accepts its keys and tokens."""

import asyncio
import base64
import dataclasses
import io
import json
import os
import re

import pytest

from magnetar.broker import cli
from magnetar.broker.auth import key_pair
from magnetar.broker.auth.authenticator import AuthenticationFailedError, Authenticator
from magnetar.broker.auth.key_pair import PAIR_ALGORITHMS
from magnetar.broker.auth.token_command import create_token, duration_s
from magnetar.broker.settings import Settings

KEY = "data:;base64," + base64.b64encode(bytes(range(32))).decode()
NOW_S = 1_700_000_000
ES_PRIVATE = "MEECAQAwEwYHKoZIzj0CAQYIKoZIzj0DAQcEJzAlAgEBBCDyk2KI8n0g2+2bROhGPOTTe9U90dIQmgprx9YrbNUrLg=="
ED25519 = "MC4CAQAwBQYDK2VwBCIEIJ9uj72rU17GlKMyCV9lo+KLcX5O+evrZoBrL/H4wy7e"
RSA_512 = (
    "MIIBOgIBAAJBAM8vuhkWQRY+S3MvrJHlwsg1ld80q+q5i/ILY+Z/rgf656OWarp8UT6SisGLmpgY4bg7XymgAhqcB+UqL+ryI7MCAwEAAQJAA8"
    "ZQ06guI2ObKEwUDsxq0g733gstnqcmv5Apj8d/ujF1obY8OB/8bcyZp6oGFEQ50g6jkYUv2bEN5BrbnZoMYQIhAPZnmkXmqkwaaOqEDdRYyv8j"
    "5IYA2L2Im1/Znto6f0bZAiEA10EowUQf8eQMlXaXjt5T3qjS2tckdGikjTXWAfj9X2sCIGS/P4jNI1wygCtDCxSDqZxgZJOVzQjRzhWGuTipKl"
    "khAiEAjxnpbzrMBfK3DvJNZZSWq1MPAp++w4kBxEMDKEKQp0sCIC+m27gAsObjxyR1BYTpougJuNSuD9umGK+ZCLJHC60/"
)
ES_PUBLIC = (
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMKRbqSBqeWz+taP5Sc5aHhERHDrafwLp3+aeg5E3gmU2yiMH4q7AlDI7RnEjUSAG6aDrpzKT2Bj1"
    "rQKUadPBcQ=="
)
ES_TOKEN = (
    "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.rx716bWuE7lfVytzGEyXV1ljuWEIRe-10KVv29w3zP1_nSxgpPmbOJpi-OPsiNYJ8KJynA"
    "wfOcHicpI8heAPXw"
)


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


@pytest.mark.parametrize(("algorithm", "size"), [("HS256", 32), ("HS384", 48), ("HS512", 64)])
def test_a_secret_key_signs_with_the_strongest_digest_that_fits(tmp_path, capsys, algorithm, size):
    """As `pulsar tokens` of 4.2.4 does."""
    file = str(tmp_path / "key")
    assert cli.main(["tokens", "create-secret-key", "-a", algorithm, "-o", file]) == 0
    assert os.path.getsize(file) == size
    assert cli.main(["tokens", "create", "-sk", file, "-s", "a", "-hs", "kid=k=1"]) == 0
    token = capsys.readouterr().out.strip()
    assert cli.main(["tokens", "show", token]) == 0
    header, line, claims = capsys.readouterr().out.splitlines()
    assert json.loads(header) == {"typ": "JWT", "alg": algorithm, "kid": "k=1"}
    assert (line, claims) == ("---", '{"sub":"a"}')
    assert authenticate(token, file).role == "a"


@pytest.mark.parametrize("algorithm", PAIR_ALGORITHMS)
def test_a_key_pair_and_a_token_of_it(tmp_path, capsys, algorithm):
    private, public = str(tmp_path / "private"), str(tmp_path / "public")
    arguments = ["-a", algorithm, "--output-private-key", private, "--output-public-key", public]
    assert cli.main(["tokens", "create-key-pair", *arguments]) == 0
    assert [os.stat(file).st_mode & 0o777 for file in (private, public)] == [0o600, 0o644 & ~umask()]
    assert cli.main(["tokens", "create", "-a", algorithm, "-pk", private, "-s", "a", "-e", "1h"]) == 0
    token = capsys.readouterr().out.strip()
    settings = dataclasses.replace(
        Settings(),
        authentication_enabled=True,
        authentication_providers=("token",),
        token_public_key=public,
        token_public_alg=algorithm,
    )
    assert asyncio.run(Authenticator(settings).authenticate("token", token.encode())).role == "a"
    assert cli.main(["tokens", "validate", "-a", algorithm, "-pk", public, token]) == 0
    assert json.loads(capsys.readouterr().out)["sub"] == "a"


def umask():
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def test_keys_and_tokens_of_apache_pulsar_are_accepted(capsys, monkeypatch):
    """The keys and the token are those that `pulsar tokens` of 4.2.4 made."""
    monkeypatch.setenv("TOKEN", ES_TOKEN)
    assert cli.main(["tokens", "show"]) == 0
    assert capsys.readouterr().out == '{"alg":"ES256"}\n---\n{"sub":"admin"}\n'
    assert cli.main(["tokens", "validate", "-a", "ES256", "-pk", ES_PUBLIC]) == 0
    assert capsys.readouterr().out == '{"sub":"admin"}\n'
    assert cli.main(["tokens", "create", "-a", "ES256", "-pk", ES_PRIVATE, "-s", "other"]) == 0
    assert cli.main(["tokens", "validate", "-a", "ES256", "-pk", ES_PUBLIC, capsys.readouterr().out.strip()]) == 0


@pytest.mark.parametrize(
    ("action", "setting"), [("create-secret-key", "tokenSecretKey"), ("create-key-pair", "tokenPublicKey")]
)
def test_the_help_names_the_setting(capsys, action, setting):
    with pytest.raises(SystemExit):
        cli.main(["tokens", action, "--help"])
    assert setting in capsys.readouterr().out


@pytest.mark.parametrize("form", ["file", "stdin", "argument"])
def test_a_token_comes_from_a_file_an_argument_or_standard_input(tmp_path, capsys, monkeypatch, form):
    token = create_token(KEY, "a", None)
    file = tmp_path / "token"
    file.write_text(f" {token}\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{token}\n"))
    source = {"file": ["--token-file", str(file)], "stdin": ["--stdin"], "argument": [token]}[form]
    assert cli.main(["tokens", "validate", "--secret-key", KEY, *source]) == 0
    assert capsys.readouterr().out == '{"sub":"a"}\n'


@pytest.mark.parametrize("action", [["show"], ["validate", "--secret-key", KEY]])
def test_a_token_file_that_cannot_be_read_is_like_such_a_key_file(tmp_path, capsys, action):
    missing = str(tmp_path / "missing")
    assert cli.main(["tokens", *action, "-f", missing]) == cli.EXIT_CONFIGURATION
    assert f"--token-file: {missing}: No such file or directory" in capsys.readouterr().err
    assert cli.main(["tokens", "create", "-s", "a", "-sk", f"file://{missing}"]) == cli.EXIT_CONFIGURATION


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (create_token(KEY, "a", "1s", lambda: NOW_S), "the broker refuses the token: token has expired"),
        (create_token("data:," + "k" * 32, "a", None), "the broker refuses the token: token: "),
        ("abc", "the broker refuses the token: token: "),
    ],
    ids=["expired", "another key", "no token"],
)
def test_a_token_that_the_broker_refuses_has_the_exit_code_1(capsys, token, words):
    assert cli.main(["tokens", "validate", "-sk", KEY, token]) == cli.EXIT_DAMAGED
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err


@pytest.mark.parametrize("text", ["abc", "a.b.c", "e30.e30", "e30.W10.x", "\xe9.e30.x", "\udcff.e30.x"])
def test_a_text_that_is_no_token_is_not_shown(capsys, text):
    assert cli.main(["tokens", "show", text]) == cli.EXIT_DAMAGED
    assert re.fullmatch("magnetar: error: the text is no token: [a-z].{20,}\n", capsys.readouterr().err)


def test_half_of_a_surrogate_pair_in_a_claim_is_shown_as_an_escape(capsys):
    claims = base64.urlsafe_b64encode(b'{"sub":"\\ud800"}').decode().rstrip("=")
    assert cli.main(["tokens", "show", f"e30.{claims}.x"]) == 0
    assert capsys.readouterr().out == '{}\n---\n{"sub":"\\ud800"}\n'


@pytest.mark.parametrize("which", ["private", "public"])
def test_a_pair_is_written_whole_or_not_at_all(tmp_path, capsys, which):
    files = {name: tmp_path / name for name in ("private", "public")}
    files[which].write_text("mine")
    arguments = ["--output-private-key", str(files["private"]), "--output-public-key", str(files["public"])]
    assert cli.main(["tokens", "create-key-pair", *arguments]) == cli.EXIT_SYSTEM
    assert [file.name for file in tmp_path.iterdir()] == [which]
    assert files[which].read_text() == "mine"
    assert capsys.readouterr().err == f"magnetar: error: {files[which]}: File exists\n"


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


def test_a_key_in_a_file_of_its_own_leaves_nothing_in_the_output(tmp_path, monkeypatch, capsys):
    """The command warned of its output, an empty file, though the key was elsewhere: `... --output KEY > log`."""
    output = tmp_path / "log"
    output.touch()
    output.chmod(0o644)
    with output.open("w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert cli.main(["tokens", "create-secret-key", "--output", str(tmp_path / "key")]) == 0
    assert capsys.readouterr().err == ""
    assert output.read_text() == ""


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
        (["--secret-key", KEY, "--subject", "a", "--headers", "kid"], "--headers: write NAME=VALUE"),
        (["--secret-key", KEY, "--subject", "a", "--headers", "alg=none"], "--headers: write NAME=VALUE"),
        (["--private-key", "file:///nowhere/key", "--subject", "a"], "--private-key: "),
        (["--private-key", ES_PUBLIC, "--subject", "a"], "--private-key: not a private key"),
        (["--private-key", ES_PRIVATE, "--subject", "a"], "--signature-algorithm: the key signs no RS256"),
        (["--private-key", ED25519, "--subject", "a"], "--private-key: a key of RSA of at least 2048 bits, or"),
        (["--private-key", RSA_512, "--subject", "a"], "--private-key: a key of RSA of at least 2048 bits, or"),
        (["--secret-key", KEY, "--subject", "\udcff"], "the role of a token has to be text in UTF-8"),
        (["--secret-key", KEY, "--subject", "a", "--headers", "kid=\udcff"], "--headers: a header has to be text"),
        (["--secret-key", KEY, "--subject", "a", "--headers", "crit=x"], "--headers: "),
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

    monkeypatch.setattr(key_pair.os, "fdopen", opened)
    file = tmp_path / "secret.key"
    assert cli.main(["tokens", "create-secret-key", "--output", str(file)]) == cli.EXIT_SYSTEM
    assert capsys.readouterr().err == f"magnetar: error: {file}: No space left on device\n"
    assert not file.exists()
