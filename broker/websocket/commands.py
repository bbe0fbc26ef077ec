"""Commands of a consumer session to the broker, beside `protocol.requests`: pure builders of frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command

if TYPE_CHECKING:
    from collections.abc import Iterable

_TYPE = pb.BaseCommand


def subscribe(command: pb.CommandSubscribe) -> bytes:
    return encode_command(pb.BaseCommand(type=_TYPE.SUBSCRIBE, subscribe=command))


def ack(consumer_id: int, entry: tuple[int, int], *, cumulative: bool = False, validation: int | None = None) -> bytes:
    """Acknowledge a whole entry; `validation`: why it could not be read."""
    kind = pb.CommandAck.Cumulative if cumulative else pb.CommandAck.Individual
    command = pb.CommandAck(consumer_id=consumer_id, ack_type=kind)
    command.message_id.add(ledgerId=entry[0], entryId=entry[1])
    if validation is not None:
        command.validation_error = validation  # type: ignore[assignment]
    return encode_command(pb.BaseCommand(type=_TYPE.ACK, ack=command))


def redeliver(consumer_id: int, entries: Iterable[tuple[int, int]]) -> bytes:
    """Give these entries again; none: all that are not acknowledged."""
    command = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id)
    for ledger_id, entry_id in entries:
        command.message_ids.add(ledgerId=ledger_id, entryId=entry_id)
    return encode_command(
        pb.BaseCommand(type=_TYPE.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)
    )


def unsubscribe(request_id: int, consumer_id: int) -> bytes:
    command = pb.CommandUnsubscribe(consumer_id=consumer_id, request_id=request_id)
    return encode_command(pb.BaseCommand(type=_TYPE.UNSUBSCRIBE, unsubscribe=command))
