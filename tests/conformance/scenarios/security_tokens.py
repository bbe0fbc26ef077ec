"""Proofs of a role: odd tokens, methods, original principals, challenges and unsolicited answers."""

import base64
import hashlib
import hmac
import json
import time

from harness.wire import TEST_KEY
from transcript import encode, jwt, scenario

ANY = "persistent://public/default/any"


def signed(head, claims, key=TEST_KEY, digest="sha256"):
    """A token of that very header and claims, both bytes or values."""

    def part(data):
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    text = part(head) + "." + part(claims)
    made = hmac.new(key, text.encode(), getattr(hashlib, digest)).digest()
    return text + "." + base64.urlsafe_b64encode(made).rstrip(b"=").decode()


HEAD = {"alg": "HS256"}
NOW = int(time.time())


def tried(s, tokens, **fields):
    """Each token on a connection of its own: the answer to CONNECT and whether a super user came of it."""
    for name, token in tokens.items():
        data = token if isinstance(token, bytes) else token.encode()
        c = s.connect(name, token="", quietly=True, auth_method_name="token", auth_data=data, **fields)
        c.ask("LOOKUP", topic=ANY, authoritative=False)
        c.close()


@scenario
def tokens_with_odd_headers(s):
    heads = {
        "typ": HEAD | {"typ": "JWT"},
        "no typ": HEAD,
        "other typ": HEAD | {"typ": "x"},
        "kid": HEAD | {"kid": "1"},
        "crit": HEAD | {"crit": ["exp"]},
        "crit unknown": HEAD | {"crit": ["x"], "x": 1},
        "lower": {"alg": "hs256"},
        "no alg": {"typ": "JWT"},
        "none": {"alg": "none"},
        "None": {"alg": "None"},
        "rs": {"alg": "RS256"},
        "es": {"alg": "ES256"},
        "alg number": {"alg": 5},
        "alg null": {"alg": None},
        "zip": HEAD | {"zip": "DEF"},
        "cty": HEAD | {"cty": "text/plain"},
        "cty json": HEAD | {"cty": "application/json"},
        "cty JWT": HEAD | {"cty": "JWT"},
        "cty empty": HEAD | {"cty": ""},
        "cty blank": HEAD | {"cty": " "},
        "cty number": HEAD | {"cty": 5},
        "alg twice": b'{"alg":"none","alg":"HS256"}',
        "kid number": HEAD | {"kid": 5},
        "typ number": HEAD | {"typ": 5},
        "jku": HEAD | {"jku": "http://127.0.0.1:1/"},
        "array": [],
        "empty": {},
        "text": b"x",
        "nothing": b"",
    }
    tried(s, {name: signed(head, {"sub": "admin"}) for name, head in heads.items()})


@scenario
def tokens_with_odd_subjects(s):
    subs = {
        "text": "admin",
        "empty": "",
        "space": " ",
        "padded": "admin ",
        "number": 5,
        "zero": 0,
        "true": True,
        "null": None,
        "list": ["admin"],
        "empty list": [],
        "object": {"a": "admin"},
        "line": "admin\n",
        "accent": "ädmin",
        "capital": "Admin",
    }
    tried(s, {name: signed(HEAD, {"sub": sub}) for name, sub in subs.items()})


@scenario
def tokens_with_odd_bodies(s):
    bodies = {
        "no sub": {"role": "admin"},
        "array": [],
        "empty": {},
        "text": b"admin",
        "number": b"5",
        "nothing": b"",
        "null": b"null",
        "twice": b'{"sub":"nobody","sub":"admin"}',
        "spaces": b' { "sub" : "admin" } ',
        "behind": b'{"sub":"admin"}x',
        "utf-16": '{"sub":"admin"}'.encode("utf-16"),
    }
    tried(s, {name: signed(HEAD, body) for name, body in bodies.items()})


@scenario
def tokens_with_odd_times(s):
    times = {
        "exp far": {"exp": 2**40},
        "exp max": {"exp": 2**62},
        "exp over": {"exp": 2**70},
        "exp zero": {"exp": 0},
        "exp negative": {"exp": -1},
        "exp float": {"exp": NOW + 1000.5},
        "exp text": {"exp": str(NOW + 1000)},
        "exp date": {"exp": "2099-01-01T00:00:00Z"},
        "exp bad text": {"exp": "never"},
        "exp null": {"exp": None},
        "exp true": {"exp": True},
        "exp signed": {"exp": "+" + str(NOW + 1000)},
        "exp spaced": {"exp": " " + str(NOW + 1000)},
        "exp blank": {"exp": ""},
        "exp date ms": {"exp": "2099-01-01T00:00:00.123Z"},
        "exp date offset": {"exp": "2099-01-01T00:00:00+01:00"},
        "exp day": {"exp": "2099-01-01"},
        "exp list": {"exp": [NOW + 1000]},
        "exp ms": {"exp": (NOW + 1000) * 1000},
        "nbf now": {"nbf": NOW - 5},
        "nbf later": {"nbf": NOW + 1000},
        "nbf text": {"nbf": str(NOW - 1000)},
        "nbf bad": {"nbf": "x"},
        "nbf null": {"nbf": None},
        "iat later": {"iat": NOW + 1000},
        "iat bad": {"iat": "x"},
        "iat text": {"iat": str(NOW)},
        "iat null": {"iat": None},
        "expired": {"exp": NOW - 5},
    }
    tried(s, {name: signed(HEAD, {"sub": "admin"} | more) for name, more in times.items()})


@scenario
def tokens_with_other_claims(s):
    claims = {
        "aud": {"aud": "x"},
        "aud list": {"aud": ["a", "b"]},
        "aud number": {"aud": 5},
        "aud null": {"aud": None},
        "iss": {"iss": "x"},
        "iss number": {"iss": 5},
        "jti": {"jti": "x"},
        "jti number": {"jti": 5},
        "aud mixed": {"aud": ["a", 5]},
        "aud empty": {"aud": []},
        "aud blank": {"aud": ""},
        "aud object": {"aud": {}},
        "own": {"own": {"deep": [1, None, {"x": 1.5}]}},
    }
    tried(s, {name: signed(HEAD, {"sub": "admin"} | more) for name, more in claims.items()})


@scenario
def tokens_of_odd_forms(s):
    good = jwt("admin")
    head, body, mark = good.split(".")
    tried(
        s,
        {
            "good": good,
            "bearer": "Bearer " + good,
            "token": "token:" + good,
            "space before": " " + good,
            "space behind": good + " ",
            "line behind": good + "\n",
            "line inside": good[:20] + "\n" + good[20:],
            "padded": f"{head}.{body}.{mark}=",
            "no mark": f"{head}.{body}.",
            "two parts": f"{head}.{body}",
            "four parts": good + ".x",
            "dots": "..",
            "dot behind": good + ".",
            "cut": good[:-1],
            "longer": good + "A",
            "other end": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
            "plus": good.replace("-", "+").replace("_", "/"),
            "nul": good.encode() + b"\0",
            "nul before": b"\0" + good.encode(),
            "mark behind": good + "!",
            "mark in it": f"{head}.{body}.!!{mark}??",
            "mark in body": f"{head}.!{body}!.{mark}",
            "mark in the middle": f"{head}.{body}.{mark[:5]}!{mark[5:]}",
            "padded body": f"{head}.{body}=.{mark}",
            "accent behind": good + "ä",
            "bytes": b"\xff\xfe",
            "empty": "",
            "long": "x" * 5000,
            "HS384": signed({"alg": "HS384"}, {"sub": "admin"}, digest="sha384"),
            "HS512": signed({"alg": "HS512"}, {"sub": "admin"}, digest="sha512"),
        },
    )


@scenario
def methods_with_and_without_data(s):
    token = jwt("admin").encode()
    for i, fields in enumerate(
        (
            {"auth_method_name": "token"},
            {"auth_method_name": "token", "auth_data": b""},
            {"auth_data": token},
            {"auth_method_name": "Token", "auth_data": token},
            {"auth_method_name": "TOKEN", "auth_data": token},
            {"auth_method_name": " token", "auth_data": token},
            {"auth_method_name": "", "auth_data": b""},
            {"auth_method_name": "none"},
            {"auth_method": "AuthMethodNone", "auth_data": token},
            {"auth_method": "AuthMethodYcaV1", "auth_data": token},
            {"auth_method": "AuthMethodAthens", "auth_data": token},
            {"auth_method": "AuthMethodAthens"},
            {"auth_method": "AuthMethodNone", "auth_method_name": "token", "auth_data": token},
            {"auth_method": "AuthMethodYcaV1", "auth_method_name": "token", "auth_data": token},
            {"auth_method_name": "sasl", "auth_data": token},
            {"auth_method_name": "oauth2", "auth_data": token},
        )
    ):
        c = s.connect(f"c{i}", token="", quietly=False, **fields)
        c.ask("LOOKUP", topic=ANY, authoritative=False)


@scenario
def original_principals_without_proxies(s):
    """Without proxy roles a client may name its own role at most."""
    token = jwt("admin").encode()
    for i, (role, fields) in enumerate(
        (
            ("admin", {"original_principal": "admin"}),
            ("admin", {"original_principal": ""}),
            ("admin", {"original_principal": "nobody"}),
            ("admin", {"original_principal": "superUser"}),
            ("nobody", {"original_principal": "admin"}),
            ("nobody", {"original_principal": "nobody"}),
            ("nobody", {"original_principal": "anonymous"}),
            ("", {"original_principal": "admin"}),
            ("", {"original_principal": "anonymous"}),
            ("admin", {"original_auth_data": token.decode()}),
            ("admin", {"original_auth_data": token.decode(), "original_auth_method": "token"}),
            ("nobody", {"original_auth_data": token.decode(), "original_auth_method": "token"}),
            ("nobody", {"original_principal": "nobody", "original_auth_data": "x", "original_auth_method": "token"}),
            ("admin", {"original_auth_method": "token"}),
            ("nobody", {"original_principal": "admin", "original_auth_data": token.decode()}),
            ("admin", {"original_principal": "admin", "proxy_version": "1"}),
            ("nobody", {"proxy_to_broker_url": "127.0.0.1:6650"}),
        )
    ):
        c = s.connect(f"c{i}", token=role and jwt(role), quietly=False, **fields)
        c.ask("LOOKUP", topic=ANY, authoritative=False)


@scenario
def original_principals_of_requests(s):
    """The original principals of LOOKUP and PARTITIONED_METADATA."""
    topic = ANY
    for role in ("admin", "nobody", ""):
        c = s.connect(f"as {role}", token=role and jwt(role))
        for i, fields in enumerate(
            (
                {"original_principal": "admin"},
                {"original_principal": "nobody"},
                {"original_principal": ""},
                {"original_principal": "anonymous"},
                {"original_auth_data": "x", "original_auth_method": "token"},
                {"original_auth_data": jwt("nobody"), "original_auth_method": "token"},
                {"original_principal": "admin", "original_auth_data": "x", "original_auth_method": "token"},
            )
        ):
            for kind in ("LOOKUP", "PARTITIONED_METADATA"):
                frame = c.ask(kind, quietly=True, topic=topic, **fields)
                s.note(f"{role} {i} {kind}", frame and [frame.command.response, frame.command.error])


def answer(c, token, method="token", **more):
    data = {"auth_method_name": method, "auth_data": token.encode()}
    c.send("AUTH_RESPONSE", quietly=True, **({"client_version": "t", "protocol_version": 21, "response": data} | more))


@scenario
def answers_to_no_challenge(s):
    for i, (role, token, method, more) in enumerate(
        (
            ("admin", jwt("admin"), "token", {}),
            ("admin", jwt("admin", exp=NOW + 5000), "token", {}),
            ("admin", jwt("nobody"), "token", {}),
            ("admin", jwt("superUser"), "token", {}),
            ("admin", "garbage", "token", {}),
            ("admin", "", "token", {}),
            ("admin", jwt("admin"), "basic", {}),
            ("admin", jwt("admin"), "", {}),
            ("admin", jwt("admin", exp=NOW - 100), "token", {}),
            ("admin", jwt("admin"), "token", {"protocol_version": 1}),
            ("admin", jwt("admin"), "token", {"client_version": ""}),
            ("", jwt("admin"), "token", {}),
            ("", jwt("anonymous"), "token", {}),
            ("nobody", jwt("nobody"), "token", {}),
        )
    ):
        c = s.connect(f"c{i}", token=role and jwt(role))
        answer(c, token, method, **more)
        c.recv(1)
        c.ask("LOOKUP", topic=ANY, authoritative=False)


@scenario
def answers_without_a_response(s):
    c = s.connect(token=jwt("admin"))
    c.send("AUTH_RESPONSE")
    c.recv(1)
    d = s.connect(token=jwt("admin"))
    d.send("AUTH_RESPONSE", response={})
    d.recv(1)
    for i, response in enumerate(({"auth_method_name": "token"}, {"auth_data": jwt("admin").encode()})):
        f = s.connect(f"f{i}", token=jwt("admin"))
        f.send("AUTH_RESPONSE", quietly=True, response=response)
        f.recv(1)
    e = s.connect(token=jwt("admin"), handshake=False)
    answer(e, jwt("admin"))
    e.recv(1)
    e.recv(1)


@scenario
def second_connect_with_tokens(s):
    for i, token in enumerate((jwt("admin"), jwt("nobody"), "garbage")):
        c = s.connect(f"c{i}", token=jwt("admin"))
        c.send("CONNECT", quietly=True, client_version="x", auth_method_name="token", auth_data=token.encode())
        c.recv(2)
        c.recv(2)


@scenario
def commands_behind_a_refused_connect(s):
    c = s.connect(handshake=False)
    connect = encode("CONNECT", client_version="x", auth_method_name="token", auth_data=b"garbage")
    lookup = encode("LOOKUP", topic=ANY, request_id=1, authoritative=False)
    c.raw(connect + lookup + encode("PING"), "CONNECT with garbage, LOOKUP, PING")
    c.recv()
    c.recv()


@scenario
def pings_behind_connect_in_one_write(s):
    s.keep_pong = True
    for i, data in enumerate((b"garbage", jwt("admin").encode())):
        c = s.connect(f"c{i}", handshake=False)
        connect = encode("CONNECT", client_version="x", auth_method_name="token", auth_data=data)
        c.raw(connect + encode("PING") + encode("PING"), "CONNECT, PING, PING")
        for _ in range(4):
            c.recv(1)


@scenario
def anonymous_commands_behind_connect_in_one_write(s):
    c = s.connect(handshake=False)
    lookup = encode("LOOKUP", topic=ANY, request_id=1, authoritative=False)
    c.raw(encode("CONNECT", client_version="x") + lookup + lookup, "CONNECT, LOOKUP, LOOKUP")
    for _ in range(3):
        c.recv(3)


@scenario
def commands_behind_connect_in_one_write(s):
    c = s.connect(handshake=False)
    connect = encode("CONNECT", client_version="x", auth_method_name="token", auth_data=jwt("admin").encode())
    lookup = encode("LOOKUP", topic=ANY, request_id=1, authoritative=False)
    c.raw(connect + lookup + lookup, "CONNECT, LOOKUP, LOOKUP")
    for _ in range(3):
        c.recv(3)
