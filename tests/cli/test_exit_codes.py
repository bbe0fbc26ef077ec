"""Every code that a command can end with stands in the table, and the table in the page."""

import argparse
import os
import pathlib
import subprocess
import sys

import pytest

from magnetar.__main__ import EXIT_CLOSED_PIPE, EXIT_FILE
from magnetar.broker.cli import build_parser
from magnetar.cli import errors, main
from magnetar.cli.docs_page import PAGE, page_text
from magnetar.cli.exit_codes import EXIT_CODES
from magnetar.cli.pulsar_admin.command import EXIT_FAILED
from magnetar.command_names import BROKER_COMMANDS, CLI_COMMANDS

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def subclasses(kind):
    return {kind, *(each for below in kind.__subclasses__() for each in subclasses(below))}


def test_every_code_is_documented():
    codes = {each.exit_code for each in subclasses(errors.CliError)}
    used = codes | {0, EXIT_FAILED, main.EXIT_INTERRUPTED, EXIT_CLOSED_PIPE, EXIT_FILE, *main.EXIT_OF_USAGE.values()}
    assert used == set(EXIT_CODES)
    page = (DOCS / "cli.md").read_text()
    for code, text in EXIT_CODES.items():
        assert f"| {code} | {text} |" in page


PRINTING = pytest.mark.parametrize(
    "command", [["completion", "bash"], ["admin", "--help"], ["version"], ["tokens", "create-secret-key"]]
)


@PRINTING
def test_a_closed_pipe_ends_a_command_quietly(command):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "magnetar", *command], stdout=writing, stderr=-1, text=True, timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (EXIT_CLOSED_PIPE, "")


@PRINTING
def test_an_output_that_is_full_ends_a_command_with_an_error(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "magnetar", *command], stdout=full, stderr=-1, text=True, timeout=60, check=False
        )
    assert done.returncode == EXIT_FILE
    assert done.stderr == f"magnetar {command[0]}: error: [Errno 28] No space left on device\n"


@PRINTING
def test_an_output_that_is_closed_ends_a_command_with_an_error(command):
    closed = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "magnetar", *command]
    done = subprocess.run(closed, stderr=-1, text=True, timeout=60, check=False)
    assert done.returncode == EXIT_FILE
    assert done.stderr == f"magnetar {command[0]}: error: [Errno 9] Bad file descriptor\n"


def test_a_pipeline_without_its_packages_names_the_extra():
    """The package without extras has no numpy: `magnetar pipeline` ended with a traceback."""
    program = (
        "import sys; sys.modules['numpy'] = None; sys.argv[1:] = ['pipeline', 'audit']; import magnetar.__main__ as m"
    )
    command = [sys.executable, "-c", f"{program}; sys.exit(m.main())"]
    done = subprocess.run(command, stderr=-1, text=True, timeout=60, check=False)
    assert done.returncode == 78
    assert "numpy" in done.stderr
    assert "pip install '/path/to/magnetar[spark]'" in done.stderr
    assert "Traceback" not in done.stderr
    program = program.replace("'audit'", "'--help'")
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; sys.exit(m.main())"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), "each command has its help"
    assert done.stdout.startswith("usage: magnetar pipeline ")
    assert "pip install '/path/to/magnetar[spark]'" in done.stdout


def test_an_input_that_is_closed_is_empty():
    """`magnetar produce orders <&-` ended with a traceback."""
    program = "import sys, magnetar.__main__ as m; m._hold_standard_streams('produce'); print(repr(sys.stdin.read()))"
    command = ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(command, stdout=-1, text=True, timeout=60, check=True).stdout == "''\n"


def test_child_processes_get_the_streams_that_stand_for_closed_streams():
    """The pipe of a converter's process had the descriptor of standard error, so that its `print` failed."""
    program = "import os, magnetar.__main__ as m; m._hold_standard_streams('standalone'); os.execvp('readlink', {})"
    command = [sys.executable, "-c", program.format(["readlink", "/proc/self/fd/0", "/proc/self/fd/2"])]
    done = subprocess.run(["sh", "-c", '"$@" <&- 2>&-', "sh", *command], stdout=-1, text=True, timeout=60, check=False)
    assert done.stdout == "/dev/null\n" * 2


def test_every_command_has_a_module_and_a_place_in_the_page():
    assert set(main.MODULES) == set(CLI_COMMANDS)
    page = (DOCS / "cli.md").read_text()
    for name in main.MODULES:
        assert main.command_of(name).name == name
        assert f"`{name}`" in page
    assert not set(BROKER_COMMANDS) & set(CLI_COMMANDS)


def test_every_command_of_the_broker_is_in_the_table_for_completion():
    (commands,) = (each for each in build_parser([], {})._actions if isinstance(each, argparse._SubParsersAction))
    assert set(commands.choices) == set(BROKER_COMMANDS)


def test_the_page_of_verbs_is_the_one_the_table_gives():
    assert PAGE.read_text() == page_text(), "python -m magnetar.cli.docs_page writes it anew"
