"""The table of commands is complete, and each handler is reached."""

from magnetar.broker.auth.table import COMMANDS
from magnetar.broker.handlers.table import FROM_BROKER, HANDLERS, NOT_A_COMMAND_FRAME, NOT_SPOKEN
from magnetar.protocol import pulsar_api_pb2 as pb

ALL = set(pb.BaseCommand.Type.values())


def test_every_command_of_the_protocol_stands_in_exactly_one_place():
    places = [set(HANDLERS), set(FROM_BROKER), set(NOT_SPOKEN), set(NOT_A_COMMAND_FRAME)]
    assert set().union(*places) == ALL
    assert sum(len(place) for place in places) == len(ALL)


def test_each_row_names_the_field_of_its_command():
    for kind, row in HANDLERS.items():
        number = pb.BaseCommand.DESCRIPTOR.fields_by_name[row.field].number
        assert number == kind, f"{row.field} is not the field of {pb.BaseCommand.Type.Name(kind)}"


def test_commands_with_a_request_id_can_be_answered_with_an_error():
    for kind, row in HANDLERS.items():
        message = pb.BaseCommand.DESCRIPTOR.fields_by_name[row.field].message_type
        if "request_id" in message.fields_by_name:
            assert row.fail is not None, pb.BaseCommand.Type.Name(kind)


def test_every_handled_command_has_a_row_of_rights():
    assert set(HANDLERS) <= set(COMMANDS)
