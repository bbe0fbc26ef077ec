"""Schemas that cost more than they look: within bounds, or refused."""

import asyncio
import contextlib
import hashlib
import json
import threading
from types import SimpleNamespace
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.broker.errors import IncompatibleSchemaError, InvalidSchemaError
from magnetar.broker.schemas import avro_resolution, schema_store, work
from magnetar.broker.schemas.avro_resolution import can_read
from magnetar.broker.schemas.avro_schema import SchemaLimitError, SchemaTextError, canonical, parse_schema
from magnetar.broker.schemas.compatibility import Definition, Fingerprint, Strategy, check_compatible, fingerprint
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.broker.schemas.schema_store import JsonSchemas, StoredSchema
from magnetar.broker.schemas.work import SchemaBench, SchemaWork, SchemaWorkError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.errors import BadVersionError
from tests.twins.memory_metadata import MemoryMetadataStore

AVRO, JSON = pb.Schema.Avro, pb.Schema.Json


def nested_twice(levels, leaf="int", defaults=True):
    """Each record contains the next record twice: 2^levels paths in a text of linear size."""
    schema = {"type": "record", "name": "R0", "fields": [{"name": "x", "type": leaf}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level - 1}"}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    return schema


def text(schema):
    return json.dumps(schema).encode()


def steps(check):
    counter = SchemaWork(10**7)
    check(counter)
    return 10**7 - counter._left


@pytest.mark.parametrize("strategy", [Strategy.FULL, Strategy.BACKWARD, Strategy.FULL_TRANSITIVE])
def test_records_nested_twice_cost_as_much_as_they_are_long(strategy):
    def cost(levels):
        old = Definition(AVRO, text(nested_twice(levels)))
        new = Definition(AVRO, text(nested_twice(levels, "int") | {"doc": "another"}))
        return steps(lambda counter: check_compatible(new, [old], strategy, counter))

    assert cost(40) < 3 * cost(20)


def test_a_difference_at_the_bottom_of_records_nested_twice_is_found():
    with pytest.raises(IncompatibleSchemaError):
        check_compatible(
            Definition(AVRO, text(nested_twice(40, "string"))),
            [Definition(AVRO, text(nested_twice(40)))],
            Strategy.BACKWARD,
        )


def test_a_union_of_many_names_is_looked_at_once():
    union = [{"type": "record", "name": f"N{i}", "fields": []} for i in range(3000)]
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": union}]}
    other = {"type": "record", "name": "R", "fields": [{"name": "u", "type": union[::-1]}]}

    def check(counter):
        check_compatible(Definition(AVRO, text(other)), [Definition(AVRO, text(schema))], Strategy.FULL, counter)

    assert steps(check) < 200_000


def test_a_union_that_cannot_be_looked_up_by_name_is_given_up():
    needy = [{"type": "record", "name": f"N{i}", "fields": [{"name": "f", "type": "int"}]} for i in range(500)]
    easy = [{"type": "record", "name": "Easy", "fields": []}]
    written = [{"type": "record", "name": f"M{i}", "fields": []} for i in range(500)]
    with pytest.raises(SchemaWorkError):
        can_read(reader=needy + easy, writer=written, work=SchemaWork(100_000))


@pytest.mark.parametrize(
    "data",
    [
        b'"' + b"a" * (1 << 20) + b'"',
        b"[" * 400 + b"]" * 400,
        b"[" * 100_000 + b"]" * 100_000,
        text({"type": "record", "name": "R", "fields": [], "doc": [0] * 100_001}),
        text({"type": "record", "name": "N" * 1025, "fields": []}),
    ],
)
def test_too_large_schemas_are_refused_by_name(data):
    with pytest.raises(SchemaLimitError):
        parse_schema(data)
    with pytest.raises(InvalidSchemaError):
        check_compatible(Definition(AVRO, data), [], Strategy.FULL)


@pytest.mark.parametrize("data", [b'{"type": {}}', b'{"type": [[]]}', b"{}", b'{"type": 5}', b'{"type": [[], {}]}'])
def test_odd_types_are_refused(data):
    for kind in (AVRO, JSON):
        with pytest.raises(InvalidSchemaError):
            check_compatible(Definition(kind, data), [], Strategy.FULL)


def test_a_chain_of_names_too_long_for_the_stack_is_given_up():
    names = [
        {"type": "record", "name": f"C{i}", "fields": [{"name": "n", "type": ["null", f"C{i + 1}"]}]}
        for i in range(2000)
    ]
    schema = [*names, {"type": "record", "name": "C2000", "fields": []}]
    assert parse_schema(text(schema)) == schema
    with pytest.raises(SchemaWorkError):
        can_read(reader=schema, writer=schema)


def test_a_name_keeps_its_namespace_wherever_it_is_used():
    inner = {
        "type": "record",
        "name": "a.Inner",
        "fields": [{"name": "f", "type": {"type": "fixed", "name": "F", "size": 1}}],
    }
    outer = {
        "type": "record",
        "name": "b.Outer",
        "fields": [{"name": "x", "type": inner}, {"name": "y", "type": "a.Inner"}, {"name": "z", "type": "a.F"}],
    }
    assert can_read(reader=outer, writer=json.loads(json.dumps(outer))) is None


def unmemoised(reader, writer):
    """The rules in a second form, without remembered results, for schemas that do not refer to each other."""
    if isinstance(writer, list):
        return all(unmemoised(reader, w) for w in writer)
    if isinstance(reader, list):
        return any(unmemoised(r, writer) for r in reader)
    if isinstance(reader, str) or isinstance(writer, str):
        return reader == writer or (writer, reader) == ("int", "long")
    if reader["type"] == "array" or writer["type"] == "array":
        return reader["type"] == writer["type"] and unmemoised(reader["items"], writer["items"])
    written = {f["name"]: f for f in writer["fields"]}
    return all(
        unmemoised(f["type"], written[f["name"]]["type"]) if f["name"] in written else "default" in f
        for f in reader["fields"]
    )


def records(inner):
    field = st.builds(
        lambda n, t, d: {"name": n, "type": t} | d, st.sampled_from("abc"), inner, st.sampled_from([{}, {"default": 0}])
    )
    fields = st.lists(field, max_size=3, unique_by=lambda f: f["name"])
    return st.one_of(
        st.builds(lambda fs: {"type": "record", "name": "R", "fields": fs}, fields),
        st.builds(lambda t: {"type": "array", "items": t}, inner),
    )


SCHEMAS = st.recursive(
    st.sampled_from(["int", "long", "string"]),
    lambda inner: st.one_of(
        records(inner), st.lists(inner.filter(lambda s: not isinstance(s, list)), min_size=1, max_size=3)
    ),
    max_leaves=12,
)


@given(SCHEMAS, SCHEMAS)
@settings(max_examples=300)
def test_remembered_comparisons_decide_as_plain_ones(reader, writer):
    with mock.patch.object(avro_resolution, "default_problem", return_value=None):
        assert (can_read(reader=reader, writer=writer) is None) == unmemoised(reader, writer)


def test_results_of_a_wrong_assumption_are_forgotten():
    """X fits Y only while A is assumed to fit B; A does not, so the union's second branch must not take X from memory."""
    x = {"type": "record", "name": "X", "fields": [{"name": "up", "type": ["null", "A"]}]}
    a = {"type": "record", "name": "A", "fields": [{"name": "x", "type": x}, {"name": "missing", "type": "int"}]}
    second = {"type": "record", "name": "B2", "fields": [{"name": "x", "type": "X"}]}
    y = {"type": "record", "name": "Y", "fields": [{"name": "up", "type": "B"}]}
    b = {"type": "record", "name": "B", "fields": [{"name": "x", "type": y}]}
    assert can_read(reader=[a, second], writer=b) is not None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_schema_or_refused(data):
    with contextlib.suppress(SchemaTextError):
        canonical(parse_schema(data))
    assert len(fingerprint(AVRO, data).digest) == 32


async def test_a_small_check_runs_at_once_and_a_long_one_beside_the_loop():
    bench = SchemaBench()
    limits = []

    def check(counter):
        limits.append((counter._left, counter._pauses))
        counter.spend(10_000)

    await bench.run(10, check)
    await bench.run(work.INLINE_BYTES + 1, check)
    assert limits == [(work.INLINE_STEPS, False), (work.MAX_STEPS, True), (work.MAX_STEPS, True)]


async def test_the_registry_refuses_schemas_that_are_too_complex(monkeypatch):
    registry = SchemaRegistry(MemoryMetadataStore(), lambda: 0)
    name = TopicName.parse("t")
    monkeypatch.setattr(work, "MAX_STEPS", 100)
    monkeypatch.setattr(work, "INLINE_STEPS", 50)
    monkeypatch.setattr(SchemaWork.__init__, "__defaults__", (100,))
    with pytest.raises(InvalidSchemaError, match="too complex"):
        await registry.put(name, AVRO, text(nested_twice(40)), {}, Strategy.FULL)


async def test_versions_of_a_topic_have_a_limit(monkeypatch):
    monkeypatch.setattr("magnetar.broker.schemas.registry.MAX_VERSIONS", 3)
    registry = SchemaRegistry(MemoryMetadataStore(), lambda: 0)
    name = TopicName.parse("t")
    for number in range(3):
        schema = {"type": "record", "name": f"R{number}", "fields": []}
        await registry.put(name, AVRO, text(schema), {}, Strategy.ALWAYS_COMPATIBLE)
    schema = {"type": "record", "name": "R1", "doc": "the same", "fields": []}
    assert (await registry.put(name, AVRO, text(schema), {}, Strategy.FULL)).version == 1
    with pytest.raises(Exception, match="at most 3 schemas"):
        await registry.put(name, AVRO, text(nested_twice(2)), {}, Strategy.ALWAYS_COMPATIBLE)


async def test_deletions_without_end_keep_no_more_versions(monkeypatch):
    """Each deletion of schemas that are deleted added a version: 5 ms of the loop beside 4,000 of them."""
    monkeypatch.setattr("magnetar.broker.schemas.registry.MAX_VERSIONS", 3)
    registry = SchemaRegistry(MemoryMetadataStore(), lambda: 0)
    name = TopicName.parse("t")
    await registry.put(name, AVRO, text({"type": "record", "name": "R", "fields": []}), {}, Strategy.FULL)
    assert [await registry.delete(name, force=False) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    assert [schema.version for schema in await registry.history(name)] == [0, 1, 6]
    assert await registry.live(name) == []


class SharedSchemas:
    """A store of which another broker changes the record before one of the reads."""

    def __init__(self, record, other, before_read):
        self.record, self.version = [record], 0
        self._other, self._before_read = other, before_read

    async def load(self, _path):
        self._before_read -= 1
        if self._before_read == 0:
            self.record, self.version = [*self.record, self._other], self.version + 1
        return list(self.record), self.version

    async def save(self, path, schemas, expected):
        if expected != self.version:
            raise BadVersionError(path, expected, self.version)
        self.record, self.version = schemas, self.version + 1


@pytest.mark.parametrize("before_read", range(1, 6))
async def test_a_schema_that_another_broker_adds_meanwhile_is_compared_as_well(before_read):
    def version_of(number, *fields):
        data = text({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, *fields]})
        return StoredSchema(number, AVRO, data, {}, 0)

    other = version_of(1, {"name": "x", "type": "string", "default": ""})
    new = version_of(2, {"name": "x", "type": "int", "default": 0})
    store = SharedSchemas(version_of(0), other, before_read)
    with contextlib.suppress(IncompatibleSchemaError):
        await SchemaRegistry(None, lambda: 0, store).put(TopicName.parse("t"), AVRO, new.data, {}, Strategy.FULL)
    assert [schema.data for schema in store.record[1:]] in ([other.data], [new.data])


async def test_an_addition_that_another_broker_precedes_is_one_addition_and_no_failure():
    first, second, third = (
        text({"type": "record", "name": "R", "fields": [{"name": name, "type": "int", "default": 0}]}) for name in "abc"
    )
    store = SharedSchemas(StoredSchema(0, AVRO, first, {}, 0), None, -1)
    registry, save = SchemaRegistry(None, lambda: 0, store), store.save

    async def preceded(path, schemas, expected):
        store.save = save
        await save(path, [*store.record, StoredSchema(1, AVRO, second, {}, 0)], store.version)
        await save(path, schemas, expected)

    store.save = preceded
    name = TopicName.parse("t")
    assert (await registry.put(name, AVRO, third, {}, Strategy.FULL)).version == 2
    assert (registry.measured(name).put.count, registry.measured(name).put.failures) == (1, 0)


async def test_the_figures_of_a_namespace_go_five_minutes_after_its_last_use():
    registry = SchemaRegistry(None, lambda: 0, KeptSchemas([]))
    used, left = TopicName.parse("public/used/t"), TopicName.parse("public/left/t")
    await registry.get(left)
    for _ in range(5):
        await registry.get(used)
        registry.roll(60)
    assert set(registry.meters) == {"public/used", "public/left"}
    await registry.get(used)
    registry.roll(60)
    assert list(registry.meters) == ["public/used"]
    assert registry.meters["public/used"].get.count == 6


class KeptSchemas:
    """A store with these versions of one topic."""

    def __init__(self, definitions):
        self.record = [StoredSchema(number, AVRO, data, {}, 0) for number, data in enumerate(definitions)]

    async def load(self, _path):
        return self.record, 0


def record_of(name, doc=""):
    return text({"type": "record", "name": name, "doc": doc, "fields": []})


async def test_a_search_hashes_the_stored_definitions_once(monkeypatch):
    """Each search hashed 8 MiB twice on the loop: 64 searches in a round took 0.8 s."""
    registry = SchemaRegistry(None, lambda: 0, KeptSchemas([record_of(f"R{n}", "x" * 1000) for n in range(8)]))
    await registry.find(TopicName.parse("t"), AVRO, record_of("Unknown"))
    hashed = []

    def sha256(data):
        hashed.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(schema_store, "hashlib", SimpleNamespace(sha256=sha256))
    assert await registry.find(TopicName.parse("t"), AVRO, record_of("Other")) is None
    assert sum(hashed) < 1000
    found = await registry.find(TopicName.parse("t"), AVRO, record_of("R5", "y"))
    assert found is not None
    assert found.version == 5


NONE_KNOWN = Fingerprint(b"", None)


def large(number):
    fields = [{"name": f"f{n}", "type": ["null", "string"], "default": None} for n in range(number % 3, 1500)]
    return text({"type": "record", "name": f"R{number}", "fields": fields})


async def test_a_known_text_is_found_among_versions_that_need_more_steps_than_a_check_has(monkeypatch):
    """The first producer of such a topic behind a start of the broker was refused."""
    monkeypatch.setattr(work.SchemaWork.__init__, "__defaults__", (50_000,))
    stored = [large(number) for number in range(10)]
    registry = SchemaRegistry(None, lambda: 0, KeptSchemas(stored))
    found = await registry.find(TopicName.parse("t"), AVRO, stored[-1])
    assert found is not None
    assert found.version == 9


async def test_the_search_for_a_known_text_with_known_fingerprints_waits_for_no_other_check(monkeypatch):
    registry = SchemaRegistry(None, lambda: 0, KeptSchemas([large(number) for number in range(3)]))
    name, definition = TopicName.parse("t"), large(2)
    await registry.find(name, AVRO, definition)
    monkeypatch.setattr(schema_store, "hashlib", None)
    async with registry._bench._turn:
        found = await asyncio.wait_for(registry.find(name, AVRO, definition), 30)
    assert found is not None
    assert found.version == 2


async def test_a_search_that_gets_no_nearer_is_refused(monkeypatch):
    turns = []
    registry = SchemaRegistry(None, lambda: 0, KeptSchemas([large(0)]))

    async def has_too_few_steps(size, _check):
        turns.append(size)
        raise SchemaWorkError

    monkeypatch.setattr(registry._bench, "run", has_too_few_steps)
    with pytest.raises(InvalidSchemaError, match="too complex"):
        await registry.find(TopicName.parse("t"), AVRO, large(0))
    assert len(turns) == 1


async def test_a_search_among_thousands_of_versions_runs_beside_the_loop(monkeypatch):
    registry = SchemaRegistry(None, lambda: 0, KeptSchemas([record_of(f"R{n}") for n in range(3000)]))
    await registry.find(TopicName.parse("t"), AVRO, record_of("Unknown"))
    threads = []
    monkeypatch.setattr(registry, "_fingerprint", lambda *_: (threads.append(threading.get_ident()), NONE_KNOWN)[1])
    await registry.find(TopicName.parse("t"), AVRO, record_of("Other"))
    assert threads
    assert threading.get_ident() not in threads


async def test_a_round_encodes_a_single_large_record():
    store, encoded = JsonSchemas(MemoryMetadataStore()), []
    schemas = [StoredSchema(0, AVRO, bytes(300_000), {}, 0)]
    tasks = [asyncio.create_task(store.save(f"/schemas/public/default/{n}", schemas, -1)) for n in range(3)]
    real = msgspec.json.encode
    rounds = 0

    def encode(value):
        encoded.append(rounds)
        return real(value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_store.msgspec.json, "encode", encode)
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            rounds += 1
    assert len(set(encoded)) == 3


async def test_a_round_decodes_a_single_large_record(monkeypatch):
    """The first schemas of 8 topics with 6 MB each, requested together behind a start, were read in a turn of 55 ms."""
    metadata = MemoryMetadataStore()
    paths = [f"/schemas/public/default/{number}" for number in range(4)]
    for path in paths:
        await JsonSchemas(metadata).save(path, [StoredSchema(0, AVRO, bytes(300_000), {}, 0)], -1)
    store, decoded, rounds = JsonSchemas(metadata), [], 0
    real = msgspec.json.decode

    def decode(value, **options):
        decoded.append(rounds)
        return real(value, **options)

    monkeypatch.setattr(schema_store.msgspec.json, "decode", decode)
    tasks = [asyncio.create_task(store.load(path)) for path in [*paths, *paths]]
    while not decoded:
        await asyncio.sleep(0)
        rounds += 1
    await store.delete(paths[-1])
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        rounds += 1
    assert len(decoded) == len(set(decoded)) == len(paths) - 1
    assert [len(task.result()[0]) for task in tasks] == [1, 1, 1, 0] * 2
    assert await store.load(paths[-1]) == ([], -1), "a deleted record comes back"
