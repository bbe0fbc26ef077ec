"""One run of one scenario: its connections, its REST calls, and the log with neutral values for all varying parts."""

import json
import os
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from harness.clock import WallClock
from harness.connection import Connection
from harness.wire import PUBLISH_TIME, plain, short_bytes
from harness.words import set_words

SECONDS = 30
MOST_OWED_SECONDS = 2
REST_SECONDS = 60  # a broker without processor time for a while has not failed
NONE = 2**64 - 1
_DROP = {
    "server_version", "message", "error_message", "address", "connectedSince", "consumerName",
    "msgRateOut", "msgThroughputOut", "msgRateRedeliver", "msgRateExpired",
}  # fmt: skip
_TIMES = {"broker_timestamp", "publish_time", "time_stamp"}
_URLS = {"brokerServiceUrl", "brokerServiceUrlTls"}
_FEATURES = (
    "supports_auth_refresh",
    "supports_broker_entry_metadata",
    "supports_partial_producer",
    "supports_topic_watchers",
)


class Session:
    def __init__(self, name, url, http, token=None, clock=None):
        self.name, self.http_base, self.token, self.keep_pong = name, http, token, False
        self.host, self.port = urllib.parse.urlparse(url).hostname, urllib.parse.urlparse(url).port
        # Of constant length, because answers name the length of a topic.
        unique = f"{os.getpid() % 16**4:04x}{threading.get_ident() % 16**4:04x}{time.monotonic_ns() % 16**8:08x}"
        self.tag = f"{name[:40]}-{unique}"
        self.lines, self.ledgers, self.sent, self.connections, self.requests = [], {}, set(), [], 0
        self.quiet, self.http_headers, self.clock = None, {}, clock or WallClock()
        self.web_sockets = []
        self.deadline, self._paid = self.clock.now() + SECONDS, self.clock.lost

    # time
    def within_deadline(self, timeout):
        return max(0, min(timeout, self.deadline - self.clock.now()))

    def check_deadline(self):
        if self.clock.now() >= self.deadline:
            raise TimeoutError(f"the scenario's {SECONDS} seconds are over")

    def owed(self):
        """Seconds that the clock lost since repaid() was last called, within reason."""
        return min(self.clock.lost - self._paid, MOST_OWED_SECONDS)

    def repaid(self):
        self._paid = self.clock.lost

    # names
    def topic(self, name="t", namespace="public/default", domain="persistent"):
        """A topic name of this run's own, looked up as a client would before use."""
        topic = f"{domain}://{namespace}/{self.tag}-{name}"
        self.lookup(topic)
        return topic

    def lookup(self, topic):
        if self.quiet is None:
            self.quiet = self.connect("quiet")
        self.quiet.send("LOOKUP", quietly=True, topic=topic, request_id=self.next_request(), authoritative=False)
        self.quiet.recv_quietly()
        self.sent.clear()

    def namespace(self, name="ns", tenant="public"):
        return f"{tenant}/{self.tag}-{name}"

    def next_request(self):
        self.requests += 1
        return 1000 + self.requests

    # the wire
    def connect(self, name=None, handshake=True, quietly=True, token=None, **fields):
        """A connection; with handshake, CONNECT as a current client sends it (fields override) and its answer.

        The answer is logged when quietly is False. `token` replaces the session's ("" for none).
        """
        token = self.token if token is None else token
        sock = socket.create_connection((self.host, self.port), timeout=REST_SECONDS)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        c = Connection(self, name or f"c{sum(x.name != 'quiet' for x in self.connections) + 1}", sock)
        self.connections.append(c)
        if handshake:
            auth = {"auth_method_name": "token", "auth_data": token.encode()} if token else {}
            features = dict.fromkeys(_FEATURES, True)
            base = {"client_version": "transcript 1", "protocol_version": 21, "feature_flags": features}
            c.send("CONNECT", quietly=quietly, **(base | auth | fields))
            frame = c._read(10)
            if not quietly or not frame or frame.type != "CONNECTED":
                self.log_frame(c.name, frame)
        return c

    def web_socket(self, kind, topic, *more, name=None, token=None, headers=None, shown=None, **query):
        """A session at /ws/v2/<kind>/..., with query parameters; `more` are further parts of the path, `shown` replaces
        the query in the log.
        """
        path = "/".join(["/ws/v2", kind, topic.replace("://", "/"), *more])
        logged = path if shown is None else f"{path}?{shown}"
        path += "?" + urllib.parse.urlencode(query) if query else ""
        how = {"name": name or f"{kind}{len(self.web_sockets) + 1}", "token": token, "headers": headers}
        return self.web_socket_at(path, shown=path if shown is None else logged, **how)

    def web_socket_at(self, path, name="ws", token=None, headers=None, shown=None):
        from harness.web_socket import WebSocket  # the few scenarios of WebSockets alone need the library

        socket = WebSocket(self, name, path, shown or path, self.token if token is None else token, headers)
        self.web_sockets.append(socket)
        return socket

    # REST
    def http(self, method, path, body=None, keep=None, headers=None, quietly=False, raw=None, token=None):
        """A REST call, with the session's token or another ("" for none); returns (status, parsed body or text).

        Logs method, path, status and the parts of a JSON body that `keep` selects: None no part, True all, or a list of
        keys.
        """
        status, parsed = self._request(method, path, body, headers, raw, token)
        if not quietly:
            kept = parsed if keep is True else _picked(parsed, keep) if keep and isinstance(parsed, dict) else None
            self.log("http", ">", method, self.neutral(path) if body is None else {"path": path, "body": body})
            self.log("http", "<", str(status), {"body": kept} if keep else {})
        return status, parsed

    def _request(self, method, path, body, headers, raw, token):
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http_base + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        token = self.token if token is None else token
        if token:
            request.add_header("Authorization", "Bearer " + token)
        for k, v in (headers or {}).items():
            request.add_header(k, v)
        self.check_deadline()
        began = self.clock.now()
        try:
            with urllib.request.urlopen(request, timeout=REST_SECONDS) as r:
                status, text, self.http_headers = r.status, r.read(), r.headers
        except urllib.error.HTTPError as e:
            with e:
                status, text, self.http_headers = e.code, e.read(), e.headers
        self.deadline += self.clock.now() - began  # a request has a limit of its own: all metrics take seconds
        try:
            return status, json.loads(text) if text else None
        except ValueError:
            return status, text.decode("utf-8", "replace")

    def call(self, method, path, body=None, keep=None, show=(), **how):
        """Like http, but a success without a body is logged as "done", be it 200 or 204 (Apache Pulsar sends either).

        `keep` may be a function of the parsed body, and `show` names response headers to log.
        """
        status, parsed = self.http(method, path, body, quietly=True, **how)
        sent = {} if body is None else {"body": body}
        sent |= {"raw": how["raw"].decode()} if how.get("raw") is not None else {}
        sent |= {"headers": how["headers"]} if how.get("headers") else {}
        self.log("http", ">", method, {"path": path} | sent if sent else path)
        detail = {}
        if callable(keep):
            detail["body"] = keep(parsed) if status < 300 else None
        elif keep and status < 300:
            detail["body"] = parsed if keep is True or not isinstance(parsed, dict) else _picked(parsed, keep)
        if show:
            detail["headers"] = {k: self.http_headers.get(k) for k in show}
        self.log("http", "<", "done" if status in (200, 204) and parsed is None else str(status), detail)
        return status, parsed

    # values that a scenario computes
    def note(self, what, value):
        """Logs a value that the scenario computed (a relation, a count)."""
        self.log("note", "=", what, value)

    def eventually(self, what, check, timeout=10):
        """Polls check() until it is true; logs whether it became so."""
        ok = self.until(check, timeout)
        self.note(what, ok)
        return ok

    def until(self, check, timeout=10):
        """Polls check() until it is true; returns whether it became so, and logs nothing."""
        end = self.clock.now() + timeout
        while not (ok := bool(check())) and self.clock.now() < end:
            self.check_deadline()
            time.sleep(0.05)
        return ok

    # the log
    def saw_sent(self, fields):
        self.sent.update(v for v in fields.values() if isinstance(v, str))

    def neutral(self, value, key=""):
        if isinstance(value, dict):
            return {k: self.neutral(v, k) for k, v in value.items() if k not in _DROP}
        if isinstance(value, (list, tuple)):
            return [self.neutral(v, key) for v in value]
        if key in ("ledgerId", "ledger"):
            return "none" if value in (NONE, -1) else self.ledgers.setdefault(value, f"L{len(self.ledgers) + 1}")
        if key == "entryId" and value == NONE:
            return -1
        if key in _TIMES:
            return value if value == PUBLISH_TIME or not value else "T"
        if key in _URLS:
            return "url"
        if key in ("producer_name", "consumer_name") and value not in self.sent and value != "p":
            return "generated"
        if isinstance(value, str):
            return value.replace(self.tag, "$").replace(urllib.parse.quote(self.tag, safe=""), "$")
        return value

    def log(self, who, direction, what, detail):
        self.lines.append(f"{who} {direction} {what} {json.dumps(self.neutral(detail), sort_keys=True)}")

    def frame_text(self, frame):
        if frame is None:
            return "NOTHING", {}
        if frame is False:
            return "CLOSED", {}
        what = plain(frame.command)
        set_words(what)
        if frame.type == "SEND_RECEIPT" and what.get("highest_sequence_id") in (0, NONE):
            del what["highest_sequence_id"]  # Apache Pulsar sends either when there is none
        if frame.type == "MESSAGE":
            metadata = frame.metadata and plain(frame.metadata)
            what |= {"crc": frame.crc, "metadata": metadata, "payload": short_bytes(frame.payload or b"")}
            if frame.entry_metadata is not None:
                what["entry_metadata"] = plain(frame.entry_metadata)
        return frame.type, what

    def log_frame(self, name, frame):
        type_name, what = self.frame_text(frame)
        self.log(name, "<", type_name, what)

    def finish(self):
        for c in (*self.connections, *self.web_sockets):
            c.close()


def _picked(parsed, keys):
    return {k: parsed.get(k) for k in keys}
