"""Errors of the client become errors of the command line, each with its exit code."""

import pytest

from magnetar.cli import errors
from magnetar.cli.session import cli_error
from magnetar.client.connection import refusal
from magnetar.client.errors import InputError, RetryError
from magnetar.protocol import pulsar_api_pb2 as pb


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (pb.InvalidTopicName, errors.CommandLineError),
        (pb.TopicNotFound, errors.NotFoundError),
        (pb.AuthenticationError, errors.DeniedError),
        (pb.AuthorizationError, errors.DeniedError),
        (pb.ProducerFenced, errors.ConflictError),
        (pb.ServiceNotReady, errors.UnreachableError),
    ],
)
def test_errors_of_the_broker(code, kind):
    assert type(cli_error(refusal(code, "the reason"))) is kind


def test_errors_of_the_client():
    assert type(cli_error(InputError("x"))) is errors.ConfigurationError
    assert "Give --url" in str(cli_error(RetryError("h:1 does not answer")))
    assert "does not trust me.pem" in str(cli_error(RetryError("the connection was lost"), "me.pem"))
