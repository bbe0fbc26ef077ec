"""The tables of refusals in Apache Pulsar's words are complete, used up, and the only place of these words."""

import ast
import functools
import re
import string

import pytest

from magnetar.broker.compat import rest_refusals, wire_refusals
from magnetar.broker.compat.rest_refusals import RestRefusal
from magnetar.broker.compat.wire_refusals import WireRefusal
from magnetar.broker.errors import AuthorizationError, RestError, SubscriptionNotFoundError
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.test_architecture import ROOT, parsed, walked

TABLES = {"rest_refusals": rest_refusals, "wire_refusals": wire_refusals}
ROWS = {
    f"{table}.{name}": row
    for table, module in TABLES.items()
    for name, row in vars(module).items()
    if isinstance(row, RestRefusal | WireRefusal)
}
LONG = 30
"""Characters that no other sentence has by chance."""
FILES = [path for path in sorted((ROOT / "broker").rglob("*.py")) if path.stem not in TABLES]


def fields(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@functools.cache
def uses():
    """(row, method or field, keywords of the call) for each mention of a row in the broker."""
    found = []
    for path in FILES:
        tree = parsed(path)
        calls = {id(n.func): {k.arg for k in n.keywords} for n in walked(tree) if isinstance(n, ast.Call)}
        for node in walked(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
                row = ast.unparse(node.value)
                if row in ROWS:
                    found.append((row, node.attr, calls.get(id(node))))
    return found


def literals(path):
    """Texts of a file as they are written, values left out; docstrings may speak of anything."""
    tree = parsed(path)
    skipped = {id(n.value) for n in walked(tree) if isinstance(n, ast.Expr)}
    for node in walked(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    for node in walked(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def words(text):
    """A pattern for the text of a row, with any values; for a short row the whole text."""
    parts = re.split(r"\{\w+\}", text)
    pattern = ".+".join(map(re.escape, parts))
    return pattern if sum(map(len, parts)) > LONG else f"\\A{pattern}\\Z"


def test_each_refusal_is_used():
    assert not ROWS.keys() - {row for row, _, _ in uses()}


def test_each_use_gives_the_values_of_the_text():
    assert not [
        (row, given)
        for row, method, given in uses()
        if method in ("error", "answer") and given != fields(ROWS[row].text)
    ]


def test_no_two_rows_of_a_table_say_the_same():
    said = [(row.status if isinstance(row, RestRefusal) else row.kind, row.text) for row in ROWS.values()]
    assert len(set(said)) == len(said)


def test_these_words_stand_nowhere_else():
    """Code names a refusal: its words are compared with Apache Pulsar's at one place."""
    pattern = re.compile("|".join(sorted({words(row.text) for row in ROWS.values()}, key=len, reverse=True)), re.DOTALL)
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for path in FILES
        for line, text in literals(path)
        if pattern.search(text)
    ]
    assert not found, "name the row of broker/compat/rest_refusals.py or wire_refusals.py"


@pytest.mark.parametrize(
    ("text", "written"),
    [("Topic {topic} not found", "Topic \0 not found"), ("{topic} is full", "\0 is full"), ("plain", "plain")],
)
def test_a_copy_of_a_text_is_recognised(text, written):
    assert re.search(words(text), written) and not re.search(words(text), "not so plain")


def test_a_row_gives_its_error():
    gone = rest_refusals.TOPIC_UNKNOWN.error(topic="persistent://a/b/{c}")
    assert isinstance(gone, RestError) and (gone.status, gone.reason) == (404, "Topic persistent://a/b/{c} not found")
    missing = wire_refusals.SUBSCRIPTION_UNKNOWN.error(subscription="s")
    assert type(missing) is SubscriptionNotFoundError and str(missing) == "Subscription s not found"
    assert wire_refusals.DELAY_TOO_LONG.answer(most_ms=5) == (
        pb.NotAllowedError,
        "Exceeds max allowed delivery delay of 5 milliseconds",
    )


def test_a_command_without_a_text_of_its_own_is_denied_all_the_same():
    assert str(wire_refusals.denied(pb.BaseCommand.LOOKUP)) == "Client is not authorized to Lookup"
    other = wire_refusals.denied(pb.BaseCommand.SEEK)
    assert isinstance(other, AuthorizationError) and str(other) == "Client is not authorized"
