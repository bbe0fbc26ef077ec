"""The table of verbs against pulsar-admin itself: its verbs and flags, its requests and its output were recorded
(vectors beside this directory) by running the original against a web server that keeps the requests.
"""

import functools
import json
import pathlib
import re

import click
import pytest

from magnetar.broker.admin.app import all_routes
from magnetar.cli.pulsar_admin import command, newer
from magnetar.cli.pulsar_admin.printing import PRINTERS
from magnetar.cli.pulsar_admin.steps import STEPS, Answer, carried_out
from magnetar.cli.pulsar_admin.table import GROUPS, UNSUPPORTED, VERBS, verbs_of_group

VECTORS = pathlib.Path(__file__).resolve().parent.parent / "vectors"
REQUESTS = [json.loads(line) for line in (VECTORS / "pulsar_admin_requests.jsonl").read_text().splitlines()]
OUTPUTS = [json.loads(line) for line in (VECTORS / "pulsar_admin_outputs.jsonl").read_text().splitlines()]
THEIRS = json.loads((VECTORS / "pulsar_admin_verbs.json").read_text())
NOW_MS = 1_000_000_180_000
NOT_SERVED = {"/admin/v2/brokers/{cluster}"}
LEFT_OUT_FLAGS = {
    ("topics", "delete"): {"-r", "--from-file"},
    ("clusters", "delete"): {"--all"},
    ("clusters", "create"): {"--cluster-config-file"},
    ("clusters", "update"): {"--cluster-config-file"},
    ("namespaces", "split-bundle"): {"--split-boundaries"},
    ("namespaces", "delete"): set(),
}


class Recorder:
    """Answers from the vectors and keeps the requests."""

    def __init__(self, answers=None):
        self.sent = []
        self._answers = answers or {}

    def ask(self, request):
        body = None if request.body is None else json.loads(request.body)
        self.sent.append([request.method, request.target, body])
        default = '{"partitions": 0}' if request.target.endswith("/partitions") and request.method == "GET" else ""
        return Answer(self._answers.get(request.target, default).encode(), {})

    def confirm(self, _question):
        return True

    def now_ms(self):
        return NOW_MS


@functools.cache
def command_of(group, name):
    verb = verbs_of_group(group)[name]
    return verb, command._command(verb)


def run(argv, around):
    verb, made = command_of(*argv[:2])
    given = made.make_context(argv[1], list(argv[2:])).params
    return "".join(carried_out(verb, command.values_of(verb, given), around))


def test_each_verb_sends_the_request_of_pulsar_admin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.json").write_text('{"type": "STRING", "schema": "", "properties": {}}')
    wrong = []
    for argv, wanted in REQUESTS:
        around = Recorder()
        try:
            run(argv, around)
        except Exception as error:
            around.sent.append(repr(error))
        theirs = [[m, t, parsed(b)] for m, t, b in wanted]
        if around.sent[: len(theirs)] != theirs or (len(around.sent) > len(theirs) and around.sent[-1][0] != "GET"):
            wrong.append((argv, theirs, around.sent))
    assert not wrong


def parsed(body):
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body  # the Java client sends the name of a group as it is


@pytest.mark.parametrize(("argv", "answers", "text"), OUTPUTS, ids=[" ".join(each[0][:3]) for each in OUTPUTS])
def test_each_answer_is_printed_as_pulsar_admin_prints_it(argv, answers, text):
    assert run(argv, Recorder(dict(answers))).rstrip("\n") == text.rstrip("\n")


def test_every_verb_of_pulsar_admin_is_accepted_or_refused_with_a_reason():
    ours = {(verb.group, verb.name) for verb in VERBS}
    for group, verbs in THEIRS.items():
        for name in verbs:
            refused = group in UNSUPPORTED or f"{group} {name}" in UNSUPPORTED
            assert ((group, name) in ours) != refused, f"{group} {name}"
    for full in UNSUPPORTED:
        group, _, name = full.partition(" ")
        assert group in THEIRS or group in ("source", "sink")
        assert not name or name in THEIRS[group], full


def test_newer_verbs_are_not_among_the_recorded_verbs():
    """The verbs that the admin interface of 4.2.4 has and that of 4.0.6 lacks."""
    for verb in newer.VERBS:
        assert verb.name not in THEIRS[verb.group], verb


def test_every_flag_of_an_accepted_verb_is_accepted():
    for verb in (each for each in VERBS if each not in newer.VERBS):
        if verb.name not in THEIRS.get(verb.group, {}):
            assert (verb.group, verb.name) == ("broker-stats", "destinations"), f"not a verb of pulsar-admin: {verb}"
            continue
        ours = {name for flag in verb.flags for name in flag.names}
        for names in THEIRS[verb.group][verb.name]:
            left_out = LEFT_OUT_FLAGS.get((verb.group, verb.name), set())
            spelled = {name for name in names if name.startswith("-")}
            assert spelled & left_out or spelled & ours, f"{verb.group} {verb.name}: {spelled}"


def test_rows_name_existing_groups_printers_and_steps():
    names = [(verb.group, verb.name) for verb in VERBS]
    assert len(names) == len(set(names))
    assert {verb.group for verb in VERBS} == set(GROUPS)
    for verb in VERBS:
        assert verb.show in PRINTERS
        assert verb.steps is None or verb.steps in STEPS
        assert verb.help, verb.name
    assert {verb.steps for verb in VERBS if verb.steps} == set(STEPS)
    assert {verb.show for verb in VERBS} == set(PRINTERS)


def test_the_broker_serves_every_route_of_the_table():
    served = {(row.method, neutral(row.path)) for row in all_routes()}
    for verb in VERBS:
        route = verb.route.partition("?")[0]
        path = neutral(route if route.startswith("/") else f"/admin/v2/{route}")
        if verb.steps == "both_domains":
            path = path.replace("/admin/v2/{}/{}/{}", "/admin/v2/{}/{}/{}")
        if verb.method == "GET" and path.startswith("/admin/v2/namespaces/{}/{}/{}"):
            continue
        assert (verb.method, path) in served, f"{verb.group} {verb.name}: {verb.method} {path}"


def neutral(path):
    path = path.replace("{topic}", "{d}/{t}/{n}/{o}") if "{domain" not in path and "schemas/" not in path else path
    path = path.replace("{schema_topic}", "{t}/{n}/{o}")
    path = path.replace("{namespace}", "{t}/{n}") if "{tenant}" not in path else path
    return re.sub(r"\{[^}]*\}", "{}", path)


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["functions", "list"], "not supported: there are no functions"),
        (["topics", "offload", "t"], "the broker offloads no ledgers"),
        (["topics", "lst"], "Did you mean list"),
        (["topic", "list"], "Did you mean topics"),
        (["topics", "set-retention", "t", "-t", "soon", "-s", "1M"], "--time: 'soon' is no duration"),
        (["topics", "set-deduplication", "t"], "give one of --enable and --disable"),
        (["topics", "list", "public"], "'public' is no namespace"),
    ],
)
def test_a_refused_verb_names_the_reason(argv, text):
    with pytest.raises(click.ClickException) as caught:
        command.admin.main(argv, standalone_mode=False)
    assert text in caught.value.format_message()
