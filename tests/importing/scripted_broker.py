"""A broker with the answers that a test scripts."""

import asyncio

from magnetar.client.address import Address
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.answers import AnswerCutter
from magnetar.protocol.frames import encode_command

KIND = pb.BaseCommand
U64 = 1 << 64


def answer(kind, payload=b"", **fields):
    """Bytes of a command."""
    return encode_command(pb.BaseCommand(type=kind, **fields), payload)


def connected(max_message_size=5 << 20):
    command = pb.CommandConnected(server_version="scripted", protocol_version=21, max_message_size=max_message_size)
    return answer(KIND.CONNECTED, connected=command)


def receipt(producer_id, sequence_id, highest, *, entry_id):
    """A receipt; entry id -1 is that of a duplicate."""
    message_id = pb.MessageIdData(ledgerId=entry_id % U64, entryId=entry_id % U64)
    command = pb.CommandSendReceipt(
        producer_id=producer_id, sequence_id=sequence_id, highest_sequence_id=highest, message_id=message_id
    )
    return answer(KIND.SEND_RECEIPT, send_receipt=command)


class ScriptedBroker:
    """A broker that deduplicates, except where the test scripts other answers.

    script[type]: function(broker, command) -> bytes to answer with, in place of the default; None closes the connection.
    """

    def __init__(self, **script):
        self.script = {getattr(KIND, name): function for name, function in script.items()}
        self.seen, self.stored, self.highest = [], [], {}
        self.names = {}
        self._writers = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1], tls=False)
        self.url = f"pulsar://{self.address}"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.disconnect()
        await self._server.wait_closed()

    @property
    def connections(self):
        return len(self._writers)

    def disconnect(self):
        """End all connections."""
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        cutter = AnswerCutter()
        try:
            while data := await reader.read(1 << 16):
                for each in cutter.feed(data):
                    self.seen.append(each.command.type)
                    reply = self._reply(each.command, each.entry)
                    if reply is None:
                        return
                    writer.write(reply)
        except ConnectionError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _reply(self, command, entry):
        if command.type in self.script:
            return self.script[command.type](self, command)
        match command.type:
            case KIND.CONNECT:
                return connected()
            case KIND.PING:
                return self.pong()
            case KIND.PARTITIONED_METADATA:
                return self.partitions(command, 0)
            case KIND.LOOKUP:
                return self.lookup(command, self.url)
            case KIND.PRODUCER:
                return self.producer(command)
            case KIND.SEND:
                return self.send(command.send, entry)
            case KIND.CLOSE_PRODUCER:
                success = pb.CommandSuccess(request_id=command.close_producer.request_id)
                return answer(KIND.SUCCESS, success=success)
        return b""

    def pong(self):
        return answer(KIND.PONG, pong=pb.CommandPong())

    def partitions(self, command, count):
        response = pb.CommandPartitionedTopicMetadataResponse(
            request_id=command.partitionMetadata.request_id,
            partitions=count,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        )
        return answer(KIND.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=response)

    def lookup(self, command, url, response=pb.CommandLookupTopicResponse.Connect, **more):
        reply = pb.CommandLookupTopicResponse(
            request_id=command.lookupTopic.request_id, response=response, brokerServiceUrl=url, **more
        )
        return answer(KIND.LOOKUP_RESPONSE, lookupTopicResponse=reply)

    def producer(self, command):
        asked = command.producer
        self.names[asked.producer_id] = asked.producer_name
        success = pb.CommandProducerSuccess(
            request_id=asked.request_id,
            producer_name=asked.producer_name,
            last_sequence_id=self.highest.get(asked.producer_name, -1),
        )
        return answer(KIND.PRODUCER_SUCCESS, producer_success=success)

    def send(self, send, entry):
        name, highest = self.names[send.producer_id], max(send.sequence_id, send.highest_sequence_id)
        if send.sequence_id <= self.highest.get(name, -1):
            return receipt(send.producer_id, send.sequence_id, highest, entry_id=-1)
        self.highest[name] = highest
        self.stored.append(entry)
        return receipt(send.producer_id, send.sequence_id, highest, entry_id=len(self.stored))


def error(request_id, code, message="no"):
    """Bytes of an ERROR."""
    return answer(KIND.ERROR, error=pb.CommandError(request_id=request_id, error=code, message=message))
