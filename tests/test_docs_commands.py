"""The program accepts each `magnetar` command in the documentation, and a test runs each block of code.

The tests in RUN_BY run the blocks as they stand and check their effects. Commands elsewhere (in indented blocks and in
sentences) are only parsed by the program's own parsers: command and options.
"""

import argparse
import pathlib
import re
import shlex

import click
import pytest

from magnetar.broker import cli as broker_cli
from magnetar.cli.main import command_of
from magnetar.command_names import CLI_COMMANDS
from magnetar.pipeline.cli import build_parser as pipeline_parser

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NO_PAGES = {"plan.md", "evidence.md", "cli-admin.md"}
"""The state of the work; and a page that is made of the table of verbs."""
CODE = {"sh", "console", "python", "py", "java", "go", "js"}
RUN_BY = {
    "README.md": "test_docs.py",
    "bookkeeper.md": "cluster/test_bookkeeper_page.py",
    "cli.md": "blackbox/test_cli.py",
    "fault-kit.md": "testing/test_docs.py",
    "from-pulsar.md": "blackbox/test_moving_page.py",
    "image.md": "image/test_image.py",
    "monitoring.md": "blackbox/test_traces.py",
    "operation.md": "blackbox/test_docs_run.py",
    "testing.md": "blackbox/test_docs_run.py",
    "tutorial.md": "blackbox/test_docs_run.py",
    "websocket.md": "blackbox/test_web_sockets.py",
    "features/compaction.md": "blackbox/test_docs_run.py",
    "features/converters.md": "converters/test_docs.py",
    "features/delayed-delivery.md": "blackbox/test_delayed.py",
    "features/entry-metadata.md": "blackbox/test_entry_metadata.py",
    "pipeline/jobs.md": "pipeline/test_cli.py",
    "pipeline/sink.md": "pipeline/sink/test_options.py",
    "pipeline/source.md": "pipeline/test_apache_pulsar.py",
    "pipeline/tables.md": "pipeline/lake/test_readers.py",
    "pipeline/tutorial.md": "pipeline/spark/test_tutorial.py",
}
"""Page -> the test that types its blocks, or starts the same programs."""


def name_of(page):
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def commands_of(text):
    """Command lines that begin with `magnetar `: in blocks, and in sentences between backticks."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        stripped = line.strip().removeprefix("$ ")
        if stripped.startswith("magnetar "):
            yield from parts_of(stripped)
        elif "`magnetar " in line or "; magnetar " in line or "| magnetar " in line:
            yield from (part for code in re.findall(r"`(magnetar [^`]*)`", line) for part in parts_of(code))


def parts_of(line):
    """The magnetar commands of a line of shell, without redirections and pipes."""
    line = re.sub(r"\$\([^)]*\)", "X", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words, skip = [], False
    for word in [*lexer, ";"]:
        if skip:
            skip = False
        elif re.fullmatch(r"[<>]+", word):
            skip = True
        elif re.fullmatch(r"[|;&]+", word):
            if words[:1] == ["magnetar"]:
                yield words[1:]
            words = []
        else:
            words.append(word)


def refusal(words):
    """Why the program would refuse the command; None for an accepted command, and for a command with an open part
    (`...`).
    """
    name = words[0] if words else ""
    if not name or name in ("...", "--version", "--help") or not name[0].isalpha():
        return None
    if name in CLI_COMMANDS:
        return click_refusal(command_of(name), words[1:])
    if name == "pipeline":
        return argparse_refusal(pipeline_parser(), words[1:])
    return argparse_refusal(broker_cli.build_parser(words, CLI_COMMANDS), words)


def click_refusal(command, words):
    options = {"--help"}
    for word in words:
        spelled = word.partition("=")[0]
        if isinstance(command, click.Group) and not word.startswith("-"):
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z-]+", word):
                return None  # an open part: `magnetar admin ...`
            try:
                found = command.get_command(click.Context(command), word)
            except click.UsageError as error:
                return error.format_message()
            if found is None:
                return f"there is no {word}"
            options |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            command = found
        elif re.match(r"--?[a-z]", spelled):
            options |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            if spelled not in options:
                return f"{command.name} has no option {spelled}"
    return None


def argparse_refusal(parser, words):
    """Options that no parser along the words knows."""
    known = set()
    for word in words:
        known |= {name for action in parser._actions for name in action.option_strings}
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
    known |= {name for action in parser._actions for name in action.option_strings}
    given = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
    return f"no option {', '.join(sorted(given - known))}" if given - known else None


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in NO_PAGES], ids=name_of)
def test_commands_exist_with_their_options(page):
    wrong = {" ".join(words): why for words in commands_of(page.read_text()) if (why := refusal(words))}
    assert not wrong


def test_the_check_can_fail():
    for text in (
        "magnetar topics lst",
        "magnetar lag --nosuch",
        "x\n    magnetar standalone --no-such",
        "`magnetar backup --nix`",
    ):
        assert [why for words in commands_of(text) if (why := refusal(words))], text


def test_each_page_with_code_has_a_test_that_runs_it():
    with_code = {
        name_of(page)
        for page in PAGES
        if CODE & set(re.findall(r"^```(\w+)", page.read_text(), re.MULTILINE)) and page.name not in NO_PAGES
    }
    assert with_code <= set(RUN_BY), "say here which test types the blocks of these pages"
    assert set(RUN_BY) <= with_code | {"features/delayed-delivery.md"}
    for test in RUN_BY.values():
        assert (ROOT / "tests" / test).exists(), test
