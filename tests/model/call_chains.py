"""The calls of one SEND, one MESSAGE and one ACK through the broker, in the order in which they are made.

A broker on a simulated disk gets the command of a client that is already at work; every call of a function of this
project is written down until the answer is on the wire and nothing is left to do. `python -m tests.model.call_chains`
prints the chains.
"""

from __future__ import annotations

import pathlib
import sys
from dataclasses import dataclass, field
from typing import Any

from magnetar.protocol import pulsar_api_pb2 as pb
from tests.model.simulated_broker import Peer, Simulation

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROOMS = ("protocol", "storage", "delayed", "converters", "broker")
TOPIC = "persistent://public/default/t"
Type = pb.BaseCommand


@dataclass
class Chain:
    """Calls as (module, function), with modules like `broker/topics/producer`; `objects` are ids of called objects."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    objects: set[int] = field(default_factory=set)
    kept: list[Any] = field(default_factory=list)

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order of its first call."""
        return list(dict.fromkeys(module for module, _ in self.calls))

    @property
    def in_broker(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0].startswith("broker/")]

    def note(self, frame: Any, event: str, _argument: Any) -> None:
        """Note a call; a profile function for `sys.setprofile`."""
        if event != "call":
            return
        module = _module(frame.f_code.co_filename)
        if module is None or frame.f_code.co_name.startswith("<") or frame.f_code.co_name == "encode_command":
            return  # only the client calls `encode_command` here
        self.calls.append((module, frame.f_code.co_name))
        owner = frame.f_locals.get("self")
        if owner is not None and id(owner) not in self.objects:
            self.objects.add(id(owner))
            self.kept.append(owner)


_modules: dict[str, str | None] = {}


def _module(filename: str) -> str | None:
    if filename not in _modules:
        path = pathlib.Path(filename).resolve()
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in ROOMS
        _modules[filename] = str(path.relative_to(ROOT).with_suffix("")) if inside else None
    return _modules[filename]


class Bench:
    """A broker with a producer and a consumer of one topic."""

    def __init__(self) -> None:
        self.sim = Simulation()
        self.sim.start()
        self.producer = self._peer()
        self.consumer = self._peer()
        self._ask(self.producer, Type.PRODUCER, producer=pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1))
        subscribe = pb.CommandSubscribe(
            topic=TOPIC, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
        )
        self._ask(self.consumer, Type.SUBSCRIBE, subscribe=subscribe)
        self.sequence = 0

    def _peer(self) -> Peer:
        async def connect() -> Peer:
            return Peer(self.sim.broker, self.sim.network)

        return self.sim.run(connect())

    def _ask(self, peer: Peer, kind: int, payload: bytes = b"", **command: Any) -> None:
        async def send() -> None:
            peer.send(pb.BaseCommand(type=kind, **command), payload)

        self.sim.run(send())

    def publish(self) -> None:
        """One SEND of one message."""
        self.sequence += 1
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=self.sequence, publish_time=1)
        head = metadata.SerializeToString()
        entry = len(head).to_bytes(4, "big") + head + b"payload"
        self._ask(
            self.producer,
            Type.SEND,
            entry,
            send=pb.CommandSend(producer_id=1, sequence_id=self.sequence, num_messages=1),
        )

    def flow(self) -> None:
        """FLOW of one permit."""
        self._ask(self.consumer, Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1))

    def ack(self, message: Any) -> None:
        """ACK of a message, without a request id."""
        command = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=[message.message_id])
        self._ask(self.consumer, Type.ACK, ack=command)

    def traced(self, action: Any, *arguments: Any) -> Chain:
        """The calls of an action and of all that follows from it."""
        chain = Chain()
        sys.setprofile(chain.note)
        try:
            action(*arguments)
        finally:
            sys.setprofile(None)
        return chain


def chains() -> dict[str, Chain]:
    """By the name of the command; each is traced the second time it is used, when everything is loaded."""
    bench = Bench()
    for _ in range(2):  # without a consumer with permits: published messages wait
        bench.publish()
    send = bench.traced(bench.publish)
    bench.flow()
    bench.sim.network.take()
    message = bench.traced(bench.flow)
    first = next(f for f in bench.sim.network.take() if f.command.type == Type.MESSAGE)
    ack = bench.traced(bench.ack, first.command.message)
    bench.sim.stop()
    bench.sim.loop.close()
    return {"SEND": send, "MESSAGE": message, "ACK": ack}


if __name__ == "__main__":
    for name, chain in chains().items():
        files, objects = len(chain.modules), len(chain.objects)
        sys.stdout.write(f"{name}: {len(chain.calls)} calls in {files} files, {objects} objects\n")
        for module, function in chain.calls:
            sys.stdout.write(f"  {module}: {function}\n")
