"""Shells complete the words of every command, also of commands that argparse reads."""

import argparse
import os
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from magnetar.__main__ import parser_of_completed
from magnetar.cli.argparse_completion import as_click
from magnetar.cli.main import completed_group
from magnetar.command_names import BROKER_COMMANDS, COMPLETE_VARIABLE


def completions(*words):
    shell = ShellComplete(completed_group(parser_of_completed), {}, "magnetar", COMPLETE_VARIABLE)
    return shell.get_completions(list(words[:-1]), words[-1])


def values(*words):
    return {each.value for each in completions(*words)}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("standalone", "--"), {"--config", "--data-dir", "--set", "--check", "--help"}),
        (("verify", "--repair", ""), {"index", "metadata", "torn-tail"}),
        (("verify", "--repair", "index", "--re"), {"--repair"}),
        (("kafka", ""), {"import"}),
        (("kafka", "import", "--on-damage", "s"), {"stop", "skip"}),
        (("tokens", "create-"), {"create-secret-key", "create-key-pair"}),
        (("tokens", "create", "--su"), {"--subject"}),
        (("pipeline", "ex"), {"export"}),
        (("pipeline", "export", "--format", ""), {"parquet", "delta", "iceberg"}),
        (("initialize-cluster-metadata", "--zoo"), {"--zookeeper"}),
        (("topics", "cr"), {"create"}),
        (("version", "--"), {"--help"}),
    ],
)
def test_words_of_a_command(words, expected):
    assert expected <= values(*words)


def test_the_shell_completes_paths():
    assert [each.type for each in completions("verify", "")] == ["dir"]
    assert [each.type for each in completions("standalone", "--data-dir", "")] == ["dir"]
    assert [each.type for each in completions("standalone", "--config", "")] == ["file"]


def test_every_option_of_the_parsers_is_completed():
    """argparse's own parsers are the measure."""

    def check(words, parser):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert set(action.choices) <= values(*words, "")
                for name, inner in action.choices.items():
                    check((*words, name), inner)
        spelled = {text for action in parser._actions for text in action.option_strings if text.startswith("--")}
        assert spelled <= values(*words, "--") | {"--version"}
        return spelled

    for name in BROKER_COMMANDS:
        check((name,), parser_of_completed(name))


def test_a_repeated_option_and_a_positional_argument_of_many_values():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", metavar="FILE", help="100% of them")
    parser.add_argument("--label", action="append")
    parser.add_argument("--hidden", help=argparse.SUPPRESS)
    command = as_click("x", parser)
    shell = ShellComplete(command, {}, "x", "_X")
    assert [each.type for each in shell.get_completions(["a", "b"], "")] == ["file"]
    assert {each.value for each in shell.get_completions(["a"], "--")} == {"--label", "--help"}


def test_a_missing_extra_leaves_the_name_of_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "magnetar.pipeline.cli", None)
    assert parser_of_completed("pipeline") is None
    assert "pipeline" in values("pipe")
    assert values("pipeline", "--") == {"--help"}


def test_bash_gets_the_options_of_the_broker():
    words = "magnetar standalone --che"
    asked = {COMPLETE_VARIABLE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
    command = [sys.executable, "-m", "magnetar"]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("plain,--check\n", "")
