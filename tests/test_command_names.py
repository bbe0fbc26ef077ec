"""The command line without a command, with a misspelt command, and `help`."""

import sys

import pytest

from magnetar import __main__ as program


def run(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["magnetar", *arguments])
    try:
        code = program.main()
    except SystemExit as end:
        code = end.code
    return code, *capsys.readouterr()


def test_no_command_shows_all_commands(monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert "usage: magnetar" in err and "run a broker in the foreground" in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("standalon", "Did you mean standalone?"),
        ("topic", "Did you mean topics?"),
        ("xyzzy", "`magnetar --help` lists"),
    ],
)
def test_a_command_that_does_not_exist(name, words, monkeypatch, capsys):
    code, out, err = run(monkeypatch, capsys, name, "--set", "x=y")
    assert (code, out) == (2, "")
    assert err.startswith(f"magnetar: error: there is no command '{name}'")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "run a broker in the foreground"),
        (("verify",), "usage: magnetar verify"),
        (("lag",), "Usage: magnetar lag"),
    ],
)
def test_help(arguments, words, monkeypatch, capsys):
    code, out, _err = run(monkeypatch, capsys, "help", *arguments)
    assert code == 0
    assert words in out


@pytest.mark.parametrize("option", ["--url", "--url=pulsar://localhost:6650", "-v"])
def test_an_option_before_the_command(option, monkeypatch, capsys):
    code, _out, err = run(monkeypatch, capsys, option, "pulsar://localhost:6650", "topics", "list")
    name = option.partition("=")[0]
    assert (code, err) == (2, f"magnetar: error: options stand behind the command: magnetar COMMAND {name} ...\n")


def test_the_version(monkeypatch, capsys):
    code, out, _err = run(monkeypatch, capsys, "--version")
    assert code == 0 and out.startswith("magnetar ")
