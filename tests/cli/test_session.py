"""Errors of the client become errors of the command line, each with its exit code."""

import click
import pytest

from magnetar.cli import errors
from magnetar.cli.main import MODULES, command_of
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


@pytest.mark.parametrize(
    "name", [name for name in MODULES if name not in {"context", "completion", "backup", "restore"}]
)
def test_each_command_of_a_broker_has_the_options_that_errors_name(name):
    """Errors of `client` and `admin` named --tls-trust-certs, which they refused."""
    command = command_of(name)
    commands = [command]
    if isinstance(command, click.Group) and name not in {"client", "admin"}:
        commands = list(command.commands.values())
    for each in commands:
        assert "--tls-trust-certs" in {option for parameter in each.params for option in parameter.opts}
