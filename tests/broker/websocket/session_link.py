"""A link without a broker behind it, for tests of sessions."""

from __future__ import annotations

import types

from magnetar.broker.websocket.session import Place
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import Answer


class ScriptedLink:
    """Answers each request by `on(command)`, and remembers all commands and published entries."""

    closed = False

    def __init__(self, on=None):
        self.on = on or (lambda command: pb.CommandSuccess(request_id=1))
        self.subscribers = {}
        self.commands, self.entries = [], []
        self.patterns = []
        """None when a session waits for its turn to compile a pattern, then the cost of the compilation."""
        self.connection = types.SimpleNamespace(role=None)

    async def room_for_pattern(self):
        self.patterns.append(None)

    def compiled(self, commands):
        self.patterns.append(commands)

    def send(self, frame):
        end = 8 + int.from_bytes(frame[4:8], "big")
        self.commands.append(pb.BaseCommand.FromString(frame[8:end]))
        if self.commands[-1].type == pb.BaseCommand.SEND:
            self.entries.append(frame[end:])

    async def ask(self, build):
        self.send(build(1))
        return self.on(self.commands[-1])

    def tell(self, command):
        """A command of the broker."""
        self.subscribers[command.type](Answer(command, b""))

    def of(self, kind):
        return [command for command in self.commands if command.type == kind]


class RememberingPeer:
    """A client that reads everything."""

    is_writable = True

    def __init__(self):
        self.texts, self.ended = [], None

    def write_text(self, data):
        self.texts.append(data)

    def end(self, code, reason):
        self.ended = code, reason


def place(link, path, tasks, share=None):
    settings = types.SimpleNamespace(max_message_size=5 << 20)
    resources = types.SimpleNamespace(settings=settings, tasks=tasks)
    share = share or types.SimpleNamespace(set=lambda name, size: None, is_over=False)
    return Place(resources, lambda: 1, link, RememberingPeer(), path, share)
