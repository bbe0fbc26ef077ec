"""Each route of the admin API with hostile bodies, names and queries.

The routes come from the table of the application: the sweep includes a new route without a change here. Each route gets
a part of the values, and all values with ``MAGNETAR_SWEEP=all`` (two minutes).
"""

import gzip
import http.client
import itertools
import os
import pathlib
import re
import socket
import urllib.parse
import zlib

import pytest

from magnetar.broker import admin as admin_package
from magnetar.broker.admin.app import all_routes
from tests.attack.conftest import SECURED, Target, token
from tests.blackbox.conftest import BrokerProcess

NAMES = {
    "domain": "persistent",
    "tenant": "public",
    "namespace": "default",
    "topic": "t",
    "subscription": "s",
    "cluster": "standalone",
    "bundle": "0x00000000_0xffffffff",
}
WHOLE = os.environ.get("MAGNETAR_SWEEP") == "all"
BODIES = {
    "empty": b"",
    "null": b"null",
    "true": b"true",
    "a large number": b"1" + b"0" * 30,
    "a number of 200,000 digits": b"7" * 200_000,
    "infinity": b"1e999",
    "not a number": b"NaN",
    "100,000 brackets": b"[" * 100_000,
    "30,000 objects in each other": b'{"a":' * 30_000 + b"1" + b"}" * 30_000,
    "a name twice": b'{"a":1,"a":[]}',
    "half of a letter": b'"\\ud800"',
    "not UTF-8": b'"\xff\xfe"',
    "zero": b'"\\u0000"',
    "a long text": b'"' + b"x" * 200_000 + b'"',
    "120,000 numbers": b"[" + b"0," * 120_000 + b"0]",
    "10,000 names": b"{" + b",".join(b'"%d":"%d"' % (n, n) for n in range(10_000)) + b"}",
    "a list of everything": b'[null,-1,9223372036854775808,"",{},[],1e308,true]',
    "names of nothing": b'{"":"","\\u0000":null,"-1":-1}',
    "an unfinished text": b'{"a":"',
}
TEXTS = {
    "zero": "%00",
    "a slash": "%2F..%2F..%2F",
    "not UTF-8": "%ff%fe",
    "not quoted": "%zz%",
    "from right to left": "%e2%80%aea",
    "long": "x" * 4000,
    "negative": "-1",
    "beyond 64 bits": "9" * 25,
    "5,000 digits": "9" * 5000,
    "not a number": "NaN",
    "a colon": "1:2:3:4",
    "spaces": "%20%0d%0aX-Header:%201",
}


class Calls:
    """Requests of the superuser over a connection that is made anew where the broker has closed the previous connection."""

    def __init__(self, broker):
        self._address = urllib.parse.urlsplit(broker.http)
        self._connection = http.client.HTTPConnection(self._address.hostname, self._address.port, timeout=60)
        self.failed = []

    def send(self, name, method, path, body=b"", **headers):
        headers = {"Authorization": f"Bearer {token('admin')}", "Content-Type": "application/json"} | headers
        try:
            self._connection.request(method, path, body or None, headers)
            answer = self._connection.getresponse()
            found = answer.read()
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            return
        if answer.status >= 500 and b"internal error" in found:
            self.failed.append((name, method, path[:120]))

    def close(self):
        self._connection.close()


def path_of(row, **change):
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: (NAMES | change).get(found[1], "0"), row.path)


def some(values, count, key):
    """`count` of the values, chosen by the key; all values in the whole sweep."""
    rows = list(values.items())
    start = 0 if WHOLE else zlib.crc32(key.encode()) % len(rows)
    return itertools.islice(itertools.cycle(rows), start, start + (len(rows) if WHOLE else count))


@pytest.fixture
def calls(secured):
    found = Calls(secured.broker)
    prepare(found)
    with secured.watch() as watch:
        yield found
    found.close()
    secured.unharmed(watch, most_seconds=3.0, most_mib=96)
    assert not found.failed


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A broker for the requests by hand."""
    process = BrokerProcess(
        tmp_path_factory.mktemp("broker") / "data", SECURED | {"httpServerIdleTimeout": 1000}
    ).start()
    yield Target(process)
    assert process.stop() == 0
    assert "Traceback" not in process.log_text()


def prepare(calls):
    calls.send("", "PUT", "/admin/v2/persistent/public/default/t")
    calls.send("", "PUT", "/admin/v2/persistent/public/default/t/subscription/s")


def rows():
    order = {"GET": 0, "HEAD": 1, "POST": 2, "PUT": 3, "DELETE": 4}
    return sorted(all_routes(), key=lambda row: order[row.method])


def test_no_body_makes_a_route_fail(calls):
    """30,000 objects in each other made a produce request a logged bug, 120,000 numbers held the event loop."""
    for row in rows():
        if row.method in ("POST", "PUT", "DELETE"):
            prepare(calls)
            for name, body in some(BODIES, 3, row.path):
                calls.send(name, row.method, path_of(row), body)


def test_no_name_makes_a_route_fail(calls):
    for row in rows():
        for field in sorted(set(re.findall(r"\{(\w+)", row.path))):
            for name, text in some(TEXTS, 1, row.path + field):
                calls.send(name, row.method, path_of(row, **{field: text}))


def test_no_query_makes_a_route_fail(calls):
    sources = pathlib.Path(admin_package.__file__).parent.glob("*.py")
    names = {name for source in sources for name in re.findall(r'(?:query\w*|flag)\(\s*"(\w+)"', source.read_text())}
    assert len(names) > 20
    for row in rows():
        for name, text in some(TEXTS, 1, row.path):
            query = "&".join(f"{each}={text[:40]}" for each in sorted(names))
            calls.send(name, row.method, f"{path_of(row)}?{query}")


def head(*lines):
    return "\r\n".join(
        [*lines, f"Authorization: Bearer {token('admin')}", "Content-Type: application/json", "", ""]
    ).encode()


PATH = "/admin/v2/tenants/swept"
TENANT = b'{"adminRoles":[],"allowedClusters":["standalone"]}'
REQUESTS = {
    "HTTP/1.0": head(f"GET {PATH} HTTP/1.0"),
    "HTTP/9.9": head(f"GET {PATH} HTTP/9.9"),
    "no host": head(f"GET {PATH} HTTP/1.1", "Connection: close"),
    "two hosts": head(f"GET {PATH} HTTP/1.1", "Host: a", "Host: b", "Connection: close"),
    "a host of 8 KB": head(f"GET {PATH} HTTP/1.1", "Host: " + "x" * 8192, "Connection: close"),
    "a full address": head("GET http://metadata.internal/latest HTTP/1.1", "Host: x", "Connection: close"),
    "an expectation": head(
        f"PUT {PATH} HTTP/1.1", "Host: x", "Expect: 100-continue", "Content-Length: 50", "Connection: close"
    )
    + TENANT[:50].ljust(50),
    "another expectation": head(f"PUT {PATH} HTTP/1.1", "Host: x", "Expect: miracles", "Connection: close"),
    "a compressed body": head(
        f"PUT {PATH} HTTP/1.1",
        "Host: x",
        "Content-Encoding: gzip",
        f"Content-Length: {len(gzip.compress(bytes(50_000_000)))}",
        "Connection: close",
    )
    + gzip.compress(bytes(50_000_000)),
    "two lengths": head(f"PUT {PATH} HTTP/1.1", "Host: x", "Content-Length: 1", "Content-Length: 2") + b"{}",
    "a length and chunks": head(
        f"PUT {PATH} HTTP/1.1", "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked", "Connection: close"
    )
    + b"0\r\n\r\n",
    "a negative length": head(f"PUT {PATH} HTTP/1.1", "Host: x", "Content-Length: -5"),
    "a length beyond 64 bits": head(
        f"PUT {PATH} HTTP/1.1", "Host: x", "Content-Length: " + "9" * 25, "Connection: close"
    ),
    "a chunk of 2^64": head(f"PUT {PATH} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked")
    + b"ffffffffffffffffff\r\n{}\r\n",
    "chunks of a byte": head(f"PUT {PATH} HTTP/1.1", "Host: x", "Transfer-Encoding: chunked", "Connection: close")
    + b"".join(b"1\r\n%c\r\n" % each for each in TENANT * 500)
    + b"0\r\n\r\n",
    "1,000 requests in one": head(f"GET {PATH} HTTP/1.1", "Host: x") * 1000
    + head(f"GET {PATH} HTTP/1.1", "Host: x", "Connection: close"),
    "3,000 headers": head(f"GET {PATH} HTTP/1.1", "Host: x", *(f"a{n}: b" for n in range(3000)), "Connection: close"),
    "a method of 8 KB": head("X" * 8192 + f" {PATH} HTTP/1.1", "Host: x", "Connection: close"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_by_hand_harms_other_clients(server, name):
    """Each request gets an answer, or is not complete; and the connection ends."""
    with server.watch() as watch:
        address = urllib.parse.urlsplit(server.broker.http)
        with socket.create_connection((address.hostname, address.port), 60) as peer:
            peer.sendall(REQUESTS[name])
            found = b""
            while data := peer.recv(1 << 16):
                found += data
    assert re.match(rb"HTTP/1\.[01] [1-5]\d\d ", found) or name == "a chunk of 2^64", found[:200]
    assert b"internal error" not in found
    server.unharmed(watch, most_seconds=3.0)
