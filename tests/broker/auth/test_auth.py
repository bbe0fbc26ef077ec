"""Proving a role: tokens, passwords, certificates, and clients without a role."""

import asyncio
import base64
import hashlib
import hmac
import json
import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from magnetar.broker.auth.authenticator import AuthenticationFailedError, Authenticator
from magnetar.broker.auth.basic import matches, parse_users
from magnetar.broker.auth.claims import trimmed
from magnetar.broker.auth.token import secret_key
from magnetar.broker.settings import Settings

KEY = bytes(range(1, 33))
NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
PREFIX = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


def secret(key=KEY):
    return "data:;base64," + base64.b64encode(key).decode()


def settings(**more):
    return Settings(
        **{
            "authentication_enabled": True,
            "authentication_providers": (PREFIX + "Token",),
            "token_secret_key": secret(),
            **more,
        }
    )


def token(claims, key=KEY, alg="HS256"):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    body = part(json.dumps({"alg": alg}).encode()) + b"." + part(json.dumps(claims).encode())
    if alg == "none":
        return body + b"."
    digest = {"HS256": hashlib.sha256, "HS384": hashlib.sha384, "HS512": hashlib.sha512}[alg]
    return body + b"." + part(hmac.new(key, body, digest).digest())


def authenticate(credentials, config=None, method="token"):
    return asyncio.run(Authenticator(config or settings(), lambda: NOW_MS).authenticate(method, credentials))


def test_token_names_the_role():
    found = authenticate(token({"sub": "admin"}))
    assert (found.role, found.method, found.expires_ms) == ("admin", "token", None)


def test_foreign_characters_around_a_signature_are_left_out():
    signed, _, signature = token({"sub": "admin"}).rpartition(b".")
    padding = bytes({*range(256)} - {*b" \t\r\n\x0b\x0c."} - {*base64.urlsafe_b64encode(bytes(range(256)))})
    assert authenticate(signed + b".=" + signature + b"=").role == "admin"
    assert trimmed(signed + b"." + padding + signature + padding) == signed + b"." + signature
    assert trimmed(signed + b".=" + signature + b"= ") == signed + b".=" + signature + b"= "


def test_a_token_larger_than_any_client_sends_is_refused_before_a_look_at_it():
    signed, _, signature = token({"sub": "admin"}).rpartition(b".")
    assert authenticate(signed + b"." + b"=" * 60_000 + signature).role == "admin"
    with pytest.raises(AuthenticationFailedError, match="token of 131"):
        authenticate(signed + b"." + b"=" * (131_073 - len(signed) - len(signature)) + signature)


def test_expiry_is_reported():
    assert authenticate(token({"sub": "a", "exp": NOW_S + 5})).expires_ms == NOW_MS + 5000


@pytest.mark.parametrize(
    "credentials",
    [
        b"",
        b"nonsense",
        b"a.b.c",
        b"\xff\xfe",
        b" " + token({"sub": "admin"}),
        b"Bearer " + token({"sub": "admin"}),
        token({"sub": "admin"}, key=b"another key of thirty-two bytes!"),
        token({"sub": "admin"}, alg="none"),
        token({"sub": "admin"}, alg="HS384"),
        token({"sub": "admin", "exp": NOW_S - 1}),
        token({"sub": "admin", "exp": "soon"}),
        token({"sub": "admin", "exp": True}),
        token({"sub": "admin", "nbf": NOW_S + 1}),
        token({"sub": ""}),
        token({"sub": " "}),
        token({"sub": 5}),
        token({"sub": ["admin"]}),
        token({}),
        token([1]),
    ],
    ids=repr,
)
def test_bad_tokens_are_refused(credentials):
    with pytest.raises(AuthenticationFailedError):
        authenticate(credentials)


def test_claims_of_other_meanings_are_not_looked_at():
    assert authenticate(token({"sub": "admin", "aud": "x", "iss": "y", "own": 5})).role == "admin"


@pytest.mark.parametrize(
    "claims", [{"aud": ["x", "y"]}, {"aud": []}, {"iss": " "}, {"exp": ""}, {"iat": None}, {"nbf": {}}], ids=repr
)
def test_nothing_said_in_a_claim_is_no_claim(claims):
    assert authenticate(token({"sub": "admin", **claims})).role == "admin"


@pytest.mark.parametrize(
    "claims", [{"aud": 5}, {"aud": ["x", 5]}, {"iss": 5}, {"jti": 5}, {"iat": "never"}, {"exp": 2**62}], ids=repr
)
def test_registered_claims_must_have_their_types(claims):
    with pytest.raises(AuthenticationFailedError):
        authenticate(token({"sub": "admin", **claims}))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (str(NOW_S + 5), NOW_S + 5),
        (f"+{NOW_S + 5}", NOW_S + 5),
        ("2099-01-01T00:00:00Z", 4_070_908_800),
        ("2099-01-01T00:00:00.123Z", 4_070_908_800.123),
    ],
)
def test_times_may_be_texts(text, seconds):
    assert authenticate(token({"sub": "a", "exp": text})).expires_ms == round(seconds * 1000)


def signed(head, body):
    """A token with exactly this header and body."""
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (head, body))
    return text + b"." + base64.urlsafe_b64encode(hmac.new(KEY, text, hashlib.sha256).digest()).rstrip(b"=")


HEAD = b'{"alg":"HS256"}'


@pytest.mark.parametrize(
    "credentials",
    [
        signed(HEAD, b'{"sub":"nobody","sub":"admin"}'),
        signed(b'{"alg":"none","alg":"HS256"}', b'{"sub":"admin"}'),
        signed(b'{"alg":"HS256","cty":"JWT"}', b'{"sub":"admin"}'),
        signed(HEAD, '{"sub":"admin"}'.encode("utf-16")),
        signed(HEAD, b"null"),
        signed(HEAD, b'{"sub":"admin"}') + b" ",
        signed(HEAD, b'{"sub":"admin"}') + b".x",
    ],
    ids=repr,
)
def test_odd_texts_are_refused(credentials):
    with pytest.raises(AuthenticationFailedError):
        authenticate(credentials)


@pytest.mark.parametrize(
    "credentials",
    [
        signed(HEAD, b' {"sub":"admin"} x'),
        signed(HEAD, b'{"sub":"admin"}') + b"=",
        signed(HEAD, b'{"sub":"admin"}') + b"\0",
        signed(b'{"alg":"HS256","cty":" "}', b'{"sub":"admin"}'),
    ],
    ids=repr,
)
def test_text_around_a_token_is_ignored(credentials):
    assert authenticate(credentials).role == "admin"


def test_clock_skew_is_allowed_for():
    config = settings(token_allowed_clock_skew_seconds=10)
    assert authenticate(token({"sub": "a", "exp": NOW_S - 9, "nbf": NOW_S + 9}), config).role == "a"
    with pytest.raises(AuthenticationFailedError):
        authenticate(token({"sub": "a", "exp": NOW_S - 11}), config)


def test_role_from_another_claim_may_be_a_list():
    config = settings(token_auth_claim="roles")
    assert authenticate(token({"roles": ["x", "y"], "sub": "s"}), config).role == "x"
    assert authenticate(token({"roles": "x"}), config).role == "x"
    for claims in ({"sub": "s"}, {"roles": []}, {"roles": [5]}):
        with pytest.raises(AuthenticationFailedError):
            authenticate(token(claims), config)


def test_audience_is_checked_when_its_claim_is_configured():
    config = settings(token_audience_claim="aud", token_audience="me")
    assert authenticate(token({"sub": "a", "aud": "me"}), config).role == "a"
    assert authenticate(token({"sub": "a", "aud": ["you", "me"]}), config).role == "a"
    for audience in ("you", [], None):
        with pytest.raises(AuthenticationFailedError):
            authenticate(token({"sub": "a", "aud": audience}), config)


def test_longer_keys_allow_longer_digests():
    key = bytes(64)
    config = settings(token_secret_key=secret(key))
    for alg in ("HS256", "HS384", "HS512"):
        assert authenticate(token({"sub": "a"}, key, alg), config).role == "a"


def test_forms_of_the_secret_key(tmp_path, monkeypatch):
    raw = tmp_path / "raw.key"
    raw.write_bytes(KEY)
    monkeypatch.setenv("TOKEN_KEY", base64.b64encode(KEY).decode())
    for text in (
        secret(),
        f"file://{raw}",
        str(raw),
        "env:TOKEN_KEY",
        base64.urlsafe_b64encode(KEY).decode().rstrip("="),
    ):
        assert authenticate(token({"sub": "a"}), settings(token_secret_key=text)).role == "a"


def test_a_key_in_base64_that_begins_with_a_slash():
    key = bytes([0xFF]) + KEY
    text = base64.b64encode(key).decode()
    assert text.startswith("/")
    assert authenticate(token({"sub": "a"}, key), settings(token_secret_key=text)).role == "a"


def test_the_path_of_a_missing_file_is_no_key(tmp_path):
    """A path consists of letters of Base64, so the path itself was the key that signs tokens."""
    path = tmp_path / "secrets" / "of-the-broker" / "secret_key_of_production"
    with pytest.raises(ValueError, match=r"tokenSecretKey: .*No such file"):
        secret_key(str(path))


@pytest.mark.parametrize("text", ["secret.key", "./secret.key", "/nope.key"])
def test_a_misspelt_path_of_a_key_is_named_as_such(text):
    with pytest.raises(ValueError, match="tokenSecretKey: neither base64 nor the path of a file that exists"):
        secret_key(text)


def test_a_variable_that_holds_no_key(monkeypatch):
    monkeypatch.setenv("TOKEN_KEY", "secret.key")
    with pytest.raises(ValueError, match="tokenSecretKey: not base64"):
        secret_key("env:TOKEN_KEY")


@pytest.mark.parametrize(
    "more",
    [
        {"token_secret_key": ""},
        {"token_secret_key": secret(b"short")},
        {"token_secret_key": "file:///nowhere/key"},
        {"token_secret_key": "env:NOT_SET_ANYWHERE"},
        {"token_secret_key": "data:;base64,%%%"},
        {"token_secret_key": "", "token_public_key": "data:;base64,AAAA"},
        {"token_audience_claim": "aud"},
        {"authentication_providers": ("org.example.MyProvider",)},
        {"authentication_providers": (PREFIX + "Basic",)},
        {"authentication_providers": ("basic",), "basic_auth_conf": "data:,nonsense"},
    ],
)
def test_configuration_that_cannot_work_stops_the_start(more):
    with pytest.raises(ValueError, match=r"token|basic|provider"):
        Authenticator(settings(**more))


@pytest.mark.parametrize("form", ["pem file", "der file", "base64", "bare base64"])
@pytest.mark.parametrize("alg", ["RS256", "PS384", "ES256"])
def test_public_keys(tmp_path, form, alg):
    if alg == "ES256":
        private = ec.generate_private_key(ec.SECP256R1())
        signer = ECKey.import_key(private)
    else:
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        signer = RSAKey.import_key(private)
    encoding = Encoding.PEM if form == "pem file" else Encoding.DER
    public = private.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
    file = tmp_path / "public.key"
    file.write_bytes(public)
    as_text = base64.b64encode(public).decode()
    text = {"base64": f"data:;base64,{as_text}", "bare base64": as_text}.get(form, f"file://{file}")
    config = settings(token_secret_key="", token_public_key=text, token_public_alg=alg)
    signed = jwt.encode({"alg": alg}, {"sub": "a"}, signer, algorithms=[alg]).encode()
    assert authenticate(signed, config).role == "a"
    with pytest.raises(AuthenticationFailedError):  # the public key's bytes are no HMAC key
        authenticate(token({"sub": "a"}, public), config)


def test_public_key_is_not_mistaken_for_a_secret():
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    config = settings(token_secret_key="", token_public_key="data:;base64," + base64.b64encode(pem).decode())
    forged = jwt.encode({"alg": "HS256"}, {"sub": "a"}, OctKey.import_key(bytes(32)), algorithms=["HS256"]).encode()
    with pytest.raises(AuthenticationFailedError):
        authenticate(forged, config)


# --- passwords ---------------------------------------------------------------------------------------------------

HTPASSWD = "# users\n\nsuperUser:mQQQIsyvvKRtU\nsuperUser2:$apr1$foobarmq$kuSZlLgOITksCkRgl57ie/\n"


def basic(credentials):
    text = "data:;base64," + base64.b64encode(HTPASSWD.encode()).decode()
    return authenticate(credentials, settings(authentication_providers=("basic",), basic_auth_conf=text), "basic")


def test_passwords_of_both_kinds():
    assert basic(b"superUser:supepass").role == "superUser"
    assert basic(b"superUser2:superpassword").role == "superUser2"


@pytest.mark.parametrize(
    "credentials",
    [b"", b"superUser", b"superUser:", b"superUser:x", b"nobody:supepass", b"\xff:x", b"superUser2:\0"],
)
def test_wrong_passwords_are_refused(credentials):
    with pytest.raises(AuthenticationFailedError):
        basic(credentials)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to compare with")
@pytest.mark.parametrize("password", ["", "a", "correct horse battery staple", "0123456789abcdef", "x" * 100])
def test_apr1_of_openssl_matches(password):
    command = ["openssl", "passwd", "-apr1", "-salt", "saltsalt", "-stdin"]
    made = subprocess.run(command, input=password + "\n", capture_output=True, text=True, check=True).stdout.strip()
    assert matches(password.encode(), made)


def test_users_file():
    assert parse_users(HTPASSWD)["superUser"] == "mQQQIsyvvKRtU"
    with pytest.raises(ValueError, match="user:hash"):
        parse_users("nonsense\n")


# --- certificates and the anonymous role ---------------------------------------------------------------------------

CERTIFICATE = {"subject": ((("countryName", "X"),), (("commonName", "client-1"),))}


def test_role_of_a_certificate_is_its_common_name():
    authenticator = Authenticator(settings(authentication_providers=("AuthenticationProviderTls",)))
    assert asyncio.run(authenticator.authenticate("tls", b"", CERTIFICATE)).role == "client-1"
    for certificate in (None, {}, {"subject": ()}):
        with pytest.raises(AuthenticationFailedError):
            asyncio.run(authenticator.authenticate("tls", b"", certificate))


def test_of_several_common_names_the_last_is_the_role():
    """As in Apache Pulsar, which begins with the last part of the subject; a role of the first name is another role."""
    authenticator = Authenticator(settings(authentication_providers=("tls",)))
    names = (("commonName", "group"), ("commonName", "client-1"), ("commonName", ""), ("countryName", "X"))
    certificate = {"subject": tuple((name,) for name in names)}
    assert asyncio.run(authenticator.authenticate("tls", b"", certificate)).role == "client-1"


@pytest.mark.parametrize(
    ("part", "role"),
    [
        ("commonName=a organizationalUnitName=b", "a+OU=b"),
        ("commonName=a commonName=b userId=c domainComponent=d", "a+CN=b+UID=c+DC=d"),
        ("organizationalUnitName=b commonName=a", "outer"),  # the text of the part begins with OU=
    ],
)
def test_a_part_of_the_subject_with_several_names_gives_its_text(part, role):
    """The role was the common name alone: the same role for two holders that Apache Pulsar tells apart."""
    authenticator = Authenticator(settings(authentication_providers=("tls",)))
    names = tuple(tuple(each.split("=", 1)) for each in part.split())
    certificate = {"subject": ((("commonName", "outer"),), names)}
    assert asyncio.run(authenticator.authenticate("tls", b"", certificate)).role == role


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("a+b", r"a\+b"),
        ("a,b", r"a\,b"),
        ('a"b', r"a\"b"),
        ("a\\b", r"a\\b"),
        ("a<b>c;d", r"a\<b\>c\;d"),
        ("a=b#c", r"a\=b\#c"),
        ("  a  b  ", r"\ \ a  b\ \ "),
        ("\ra\rb\r", "\\\ra\rb\\\r"),
        ("a\0b", r"a\00b"),
        ("\ta\u00a0", "\ta\u00a0"),
        ("a/b:c@d'", "a/b:c@d'"),
        ("\u00e4\u4e2d", "\u00e4\u4e2d"),
    ],
)
def test_a_common_name_is_a_role_by_the_text_of_its_subject(name, role):
    """As in Apache Pulsar, which gets these texts from Java's X500Principal; but for a comma, where its role ends."""
    authenticator = Authenticator(settings(authentication_providers=("tls",)))
    certificate = {"subject": ((("commonName", name),),)}
    assert asyncio.run(authenticator.authenticate("tls", b"", certificate)).role == role


@pytest.mark.parametrize(
    "names",
    [
        (("commonName", "a"), ("emailAddress", "b")),  # the text has the number of this name, and the value in hex
        (("commonName", "a"), ("organizationName", "x,CN=admin")),
        (("commonName", "a "), ("organizationName", "x")),
    ],
)
def test_a_common_name_beside_names_of_another_text_is_refused(names):
    authenticator = Authenticator(settings(authentication_providers=("tls",)))
    with pytest.raises(AuthenticationFailedError):
        asyncio.run(authenticator.authenticate("tls", b"", {"subject": ((("commonName", "outer"),), names)}))


def test_method_without_provider_is_anonymous_or_refused():
    with pytest.raises(AuthenticationFailedError):
        authenticate(b"", method="none")
    found = authenticate(b"", settings(anonymous_user_role="anybody"), "none")
    assert (found.role, found.method) == ("anybody", "anonymous")
    with pytest.raises(AuthenticationFailedError):
        authenticate(b"bad", settings(anonymous_user_role="anybody"))


def test_http_headers():
    both = settings(
        authentication_providers=("token", "basic", "tls"),
        basic_auth_conf="data:;base64," + base64.b64encode(HTPASSWD.encode()).decode(),
    )
    authenticator = Authenticator(both, lambda: NOW_MS)
    assert asyncio.run(authenticator.authenticate_http("Bearer " + token({"sub": "a"}).decode())).role == "a"
    password = base64.b64encode(b"superUser:supepass").decode()
    for written in (password, password.rstrip("=")):  # padding is optional, as in Apache Pulsar
        assert asyncio.run(authenticator.authenticate_http("Basic " + written)).role == "superUser"
    assert asyncio.run(authenticator.authenticate_http(None, CERTIFICATE)).role == "client-1"
    assert asyncio.run(authenticator.authenticate_http("Bearer bad", CERTIFICATE)).role == "client-1"
    for header in (None, "", "Bearer", "Bearer bad", "Basic %%", "Digest x"):
        with pytest.raises(AuthenticationFailedError):
            asyncio.run(authenticator.authenticate_http(header))


def test_bad_http_credentials_count_as_none():
    authenticator = Authenticator(settings(anonymous_user_role="anybody"), lambda: NOW_MS)
    assert asyncio.run(authenticator.authenticate_http("Bearer bad")).role == "anybody"
    good = token({"sub": "a"}).decode()
    assert asyncio.run(authenticator.authenticate_http(None, token=good)).role == "a"
    assert asyncio.run(authenticator.authenticate_http(f"Bearer {good}", named="token")).role == "a"
    for named in ("token", "none", "basic"):
        with pytest.raises(AuthenticationFailedError):
            asyncio.run(authenticator.authenticate_http("Bearer bad", token=good, named=named))


def test_successes_and_failures_are_counted():
    authenticator = Authenticator(settings(), lambda: NOW_MS)
    asyncio.run(authenticator.authenticate("token", token({"sub": "a"})))
    for credentials in (b"bad", token({"sub": "a", "exp": NOW_S - 1})):
        with pytest.raises(AuthenticationFailedError):
            asyncio.run(authenticator.authenticate("token", credentials))
    assert authenticator.successes == {("TokenProvider", "token"): 1}
    assert authenticator.failures == {("TokenProvider", "INVALID"): 1, ("TokenProvider", "EXPIRED"): 1}
