"""A WebSocket client of a scenario: text frames of JSON, logged with ids, times and texts made neutral."""

import base64
import contextlib
import json
import re

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from harness.wire import pb

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)")


class WebSocket:
    """A session at /ws; a refused session has no socket, and its status is logged."""

    def __init__(self, session, name, path, shown, token=None, headers=None):
        self._session, self.name = session, name
        headers = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        session.log(name, ">", "OPEN", shown)
        self._socket, self._closing = None, contextlib.ExitStack()
        try:
            url = session.http_base.replace("http", "ws", 1) + path
            how = {"compression": None, "open_timeout": 30, "proxy": None, "ping_interval": None}
            self._socket = self._closing.enter_context(connect(url, additional_headers=headers, **how))
        except InvalidStatus as e:
            session.log(name, "<", "REFUSED", e.response.status_code)

    @property
    def is_open(self):
        return self._socket is not None

    def send(self, quietly=False, **message):
        self.send_text(json.dumps(message), message, quietly=quietly)

    def send_text(self, text, shown=None, *, quietly=False):
        if not quietly:
            self._session.log(self.name, ">", "TEXT", text if shown is None else self._plain(shown))
        self._socket.send(text)

    def send_bytes(self, data):
        self._session.log(self.name, ">", "BYTES", len(data))
        self._socket.send(data)

    def recv(self, timeout=10, *, quietly=False):
        """The next message, parsed; None when none comes, False when the session is closed."""
        self._session.check_deadline()
        try:
            text = self._socket.recv(self._session.within_deadline(timeout))
        except TimeoutError:
            self._session.log(self.name, "<", "NOTHING", {})
            return None
        except ConnectionClosed as e:
            code = e.rcvd.code if e.rcvd is not None else None
            self._session.log(self.name, "<", "CLOSED", {"code": code})
            return False
        message = json.loads(text)
        if not quietly:
            self._session.log(self.name, "<", "TEXT", self._plain(message))
        return message

    def none(self, timeout=0.5):
        """Nothing may come."""
        self.recv(timeout)

    def ask(self, **message):
        self.send(**message)
        return self.recv()

    def close(self):
        self._closing.close()

    def _plain(self, message):
        if not isinstance(message, dict):
            return message
        shown = {}
        for key, value in message.items():
            if key == "messageId" and isinstance(value, str):
                shown[key] = self._message_id(value)
            elif key in ("publishTime", "eventTime") and isinstance(value, str) and _TIME.fullmatch(value):
                shown[key] = "T" if key == "publishTime" else value
            elif key == "errorMsg":
                shown[key] = value is not None
            else:
                shown[key] = value
        return shown

    def _message_id(self, text):
        try:
            found = pb.MessageIdData.FromString(base64.b64decode(text, validate=True))
        except Exception:
            return "none"
        fields = {field.name: value for field, value in found.ListFields()}
        return self._session.neutral(fields)
