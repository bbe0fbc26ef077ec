"""Fuzzing of texts that a peer chooses and the broker walks: patterns, schemas, bodies of produce requests.

The broker accepts all of them or refuses them with a typed error, and cost bounded processor time: more than
CPU_SECONDS for one input counts as a crash. The inputs of `corpus/` are tried first; a failure prints the input to add
there.

MAGNETAR_FUZZ_SECONDS sets how long; MAGNETAR_FUZZ_SEED repeats a failed run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import random
import time

import pytest

from magnetar.broker.admin.produce_body import produce_body
from magnetar.broker.errors import IncompatibleSchemaError, InvalidSchemaError, RestError
from magnetar.broker.schemas.compatibility import Definition, Strategy, check_compatible, fingerprint
from magnetar.broker.schemas.work import SchemaWorkError
from magnetar.broker.topics.patterns import InvalidPatternError, TopicPattern
from magnetar.protocol import pulsar_api_pb2 as pb

SECONDS = float(os.environ.get("MAGNETAR_FUZZ_SECONDS", "3")) / 3
SEED = int(os.environ.get("MAGNETAR_FUZZ_SEED", "20240229"))
CORPUS = pathlib.Path(__file__).parent / "corpus"
CPU_SECONDS = 10
NAMES = [
    f"persistent://public/default/{name}"
    for name in ("", "a" * 500, "ab" * 200, "a-partition-3", "ä.c", "\n", "aab" * 99)
]
_PATTERN_PARTS = [
    *(
        "a",
        "b",
        ".",
        "\\w",
        "\\d",
        "[a-z]",
        "[^b]",
        "\\p{Lower}",
        "\\pL",
        "\\PN",
        "(?i)",
        "(?s)",
        "\\Q",
        "\\E",
        "[[:alpha:]]",
    ),
    *(
        "*",
        "+",
        "?",
        "{2,9}",
        "{99}",
        "{0,1000}",
        "*?",
        "++",
        "(",
        ")",
        "(?:",
        "(?!",
        "(?<n>",
        "|",
        "^",
        "$",
        "\\",
        "[",
        "]",
        "\\1",
    ),
    *("persistent://", "://", "ä", "\x00", "\ud800"),
]


def pattern(rng):
    return "".join(rng.choice(_PATTERN_PARTS) for _ in range(rng.randrange(1, 14)))[:50]


def try_pattern(text):
    with contextlib.suppress(InvalidPatternError):
        TopicPattern(text).filter(NAMES)


class SchemaMaker:
    """A schema with shared and recursive parts; the same seed gives the same schema."""

    def __init__(self, rng):
        self.rng, self.names = rng, []

    def make(self, depth=0):
        rng = self.rng
        kind = rng.choice(
            ["int", "long", "string", "null", "name", "record", "record", "union", "array", "map", "enum", "odd"]
        )
        if depth > 12 or kind in ("int", "long", "string", "null"):
            return rng.choice(["int", "long", "string", "null", "bytes"])
        if kind == "name":
            return rng.choice(self.names) if self.names else "Nowhere"
        if kind == "record":
            name = f"R{len(self.names)}"
            self.names.append(name)
            many = rng.choice([1, 2, 2, 3, 40])
            fields = [{"name": f"f{i}", "type": self.make(depth + 1 if many < 9 else 13)} for i in range(many)]
            return {"type": "record", "name": name, "fields": fields} | rng.choice(
                [{}, {"namespace": "n.s"}, {"doc": "d"}]
            )
        if kind == "union":
            return [self.make(depth + 1) for _ in range(rng.choice([1, 2, 3, 60]))]
        if kind == "enum":
            return {
                "type": "enum",
                "name": f"E{rng.randrange(9)}",
                "symbols": [f"S{i}" for i in range(rng.choice([0, 3, 500]))],
            }
        if kind == "odd":
            return rng.choice(
                [{}, {"type": []}, {"type": {"type": "int"}}, 5, None, True, {"type": "record"}, "x" * 2000, [[]]]
            )
        return {"type": kind, "items" if kind == "array" else "values": self.make(depth + 1)}


def schema_pair(rng):
    """Two schemas, the second a change of the first."""
    one = SchemaMaker(rng).make()
    text = json.dumps(one)
    other = (
        text.replace('"int"', '"long"', rng.randrange(3)) if rng.random() < 0.7 else json.dumps(SchemaMaker(rng).make())
    )
    if rng.random() < 0.1:
        other = other[: rng.randrange(len(other))]
    return json.dumps([text, other])


def try_schemas(text):
    one, other = (each.encode() for each in json.loads(text))
    for schema_type in (pb.Schema.Avro, pb.Schema.Json):
        try:
            check_compatible(Definition(schema_type, one), [Definition(schema_type, other)], Strategy.FULL)
            assert len(fingerprint(schema_type, one).digest) == 32
        except (IncompatibleSchemaError, InvalidSchemaError, SchemaWorkError):
            pass


def body(rng):
    """A produce request with some invalid parts."""

    def value(depth=0):
        kinds = [None, True, 5, -1.5, "x", "é" * 50, "x" * rng.choice([1, 1000, 70_000])]
        if depth < 3 and rng.random() < 0.3:
            return {rng.choice(["a", "payload", "b"]): value(depth + 1) for _ in range(rng.randrange(3))}
        return (
            [value(depth + 1) for _ in range(rng.randrange(3))]
            if depth < 3 and rng.random() < 0.2
            else rng.choice(kinds)
        )

    fields = [
        "payload",
        "payload",
        "payload",
        "key",
        "properties",
        "eventTime",
        "sequenceId",
        "deliverAt",
        "replicationClusters",
    ]
    message = {f: value() if rng.random() < 0.2 else "1" for f in rng.sample(fields, rng.randrange(1, 6))}
    message["properties"] = {"a": "b"} if rng.random() < 0.8 else value()
    count = rng.choice([0, 1, 5, 3000, 12_000])
    whole = {
        "messages": [message] * count if rng.random() < 0.9 else value(),
        "producerName": value(),
        "valueSchema": value(),
    }
    text = json.dumps(whole)
    return text if rng.random() < 0.8 else text[: rng.randrange(len(text))] + rng.choice(["", "}", "]", "\x00"])


def try_body(text):
    async def run():
        found = await produce_body(text.encode())
        if found is not None:
            async for messages in found.slices():
                assert all(m.payload is not None for m in messages)

    try:
        asyncio.run(run())
    except RestError as e:
        if e.status not in (400, 413, 500):
            raise


TARGETS = {"pattern": (pattern, try_pattern), "schemas": (schema_pair, try_schemas), "body": (body, try_body)}


def checked(attempt, text):
    began = time.thread_time()
    try:
        attempt(text)
    except BaseException:
        print(f"corpus: {text[:2000]!r}")
        raise
    used = time.thread_time() - began
    assert used < CPU_SECONDS, f"{used:.1f} s for {text[:2000]!r}"


@pytest.mark.parametrize("target", TARGETS)
def test_texts_of_the_corpus(target):
    texts = sorted((CORPUS / target).glob("*"))
    assert texts
    for path in texts:
        checked(TARGETS[target][1], path.read_text())


@pytest.mark.parametrize("target", TARGETS)
def test_any_text_is_taken_or_refused(target):
    make, attempt = TARGETS[target]
    rng, end, count = random.Random(SEED), time.monotonic() + SECONDS, 0
    while count < 20 or time.monotonic() < end:
        checked(attempt, make(random.Random(rng.getrandbits(60))))
        count += 1
