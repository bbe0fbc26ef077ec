"""Defaults of fields that a document does not have, at any depth of its schema."""

import pytest

from magnetar.pipeline.values.json_defaults import fill_of


def record(name, **fields):
    """Fields as (type, default) or type."""
    given = {n: f if isinstance(f, tuple) else (f,) for n, f in fields.items()}
    listed = [{"name": n, "type": f[0], **({"default": f[1]} if len(f) > 1 else {})} for n, f in given.items()]
    return {"type": "record", "name": name, "fields": listed}


INNER = record(
    "In", x=("int", 3), y=(["null", "string"], None), b=({"type": "fixed", "name": "F", "size": 1}, "\u00ff")
)
FULL = {"x": 3, "b": b"\xff"}


@pytest.mark.parametrize(
    "definition",
    ["int", {"type": "array", "items": "string"}, record("R", a="int", b=(["null", "int"], None)), ["int", INNER]],
    ids=str,
)
def test_nothing_to_fill_in(definition):
    assert fill_of(definition) is None


def test_fields_that_are_there_stay_null_or_not():
    fill = fill_of(record("R", a=("int", 5), b=(["null", "int"], 6), c="int"))
    assert fill({}) == {"a": 5, "b": 6}
    assert fill({"a": None, "b": 1, "c": 2}) == {"a": None, "b": 1, "c": 2}


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (INNER, {}, FULL),
        (INNER, {"x": None}, {"x": None, "b": b"\xff"}),
        (["null", INNER], {"y": "s"}, {"y": "s", **FULL}),
        ({"type": "array", "items": INNER}, [{}, None, {"x": 1}], [FULL, None, {"x": 1, "b": b"\xff"}]),
        ({"type": "map", "values": ["null", INNER]}, {"k": {}, "n": None}, {"k": FULL, "n": None}),
        ({"type": INNER}, {}, FULL),
        (record("Outer", i=INNER), {"i": {}}, {"i": FULL}),
    ],
    ids=str,
)
def test_records_in_fields(kind, given, found):
    fill = fill_of(record("R", f=kind))
    assert fill({"f": given}) == {"f": found}
    assert fill({"f": None}) == {"f": None}
    assert fill({}) == {"f": None}


def test_a_default_that_is_a_record_omits_fields_and_is_made_for_each_row():
    fill = fill_of(record("R", f=(INNER, {"x": 9}), l=({"type": "array", "items": "In"}, [{}])))
    first, second = fill({}), fill({})
    assert first == second == {"f": {"x": 9, "b": b"\xff"}, "l": [FULL]}
    assert first["f"] is not second["f"]


def test_names_with_and_without_their_namespace():
    inner = {**INNER, "namespace": "a.b"}
    fill = fill_of(record("R", f=inner, g="a.b.In", h=["null", "a.b.In"]))
    assert fill({"f": {}, "g": {}, "h": {}}) == {"f": FULL, "g": FULL, "h": FULL}


def test_a_union_of_several_types_is_left_alone_and_defines_names():
    fill = fill_of(record("R", u=(["string", INNER], "s"), g="In"))
    assert fill({"g": {}}) == {"u": "s", "g": FULL}
    assert fill({"u": {}, "g": None}) == {"u": {}, "g": None}


def test_documents_that_are_no_records():
    assert fill_of({"type": "array", "items": INNER})([{}]) == [FULL]
    assert fill_of({"type": "map", "values": INNER})({"k": {}}) == {"k": FULL}
