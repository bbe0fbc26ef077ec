import contextlib

import pytest

from magnetar.broker.compat import jackson_fields
from magnetar.broker.compat.jackson_fields import FieldError, Fields


def fields(text):
    found = Fields.of(text)
    assert found is not None
    return found


def test_numbers_and_truth_values_stand_for_texts():
    found = fields('{"a": 1, "b": true, "c": [1.5, "x"], "d": {"k": false, "n": null}, "e": null}')
    assert (found.text("a"), found.text("b"), found.text("e"), found.text("f")) == ("1", "true", None, None)
    assert found.texts("c") == ["1.5", "x"]
    assert found.texts("f") == []
    assert found.map_of_texts("d") == {"k": "false", "n": None}
    assert found.map_of_texts("f") == {}


def test_texts_stand_for_numbers():
    found = fields('{"a": "7", "b": 7.9, "c": null}')
    assert [found.number(name) for name in "abcd"] == [7, 7, 0, 0]


def test_bytes_behind_the_object_are_ignored():
    assert fields(' {"a": 1} rest').value("a") == 1


def test_lone_surrogates_become_question_marks():
    assert fields('{"a": "\\ud800"}').text("a") == "?"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": "x", "b": null, "\u00e9": "\u00e8"}', {"a": "x", "b": None, "é": "è"}),
        ('{"\\ud800": "x"}', {"?": "x"}),
        ('{"a": "\\ud800", "b": "\\udc00"}', {"a": "?", "b": "?"}),
        ('{"a": "\\ud800", "b": 1}', {"a": "?", "b": "1"}),
        ('{"a": "\\ud800", "b": true}', {"a": "?", "b": "true"}),
        ('{"a": 1, "b": 1.5, "c": "x", "d": -7}', {"a": "1", "b": "1.5", "c": "x", "d": "-7"}),
        ('{"a": 1, "b": true, "c": false, "d": null}', {"a": "1", "b": "true", "c": "false", "d": None}),
        ('{"a": null}', {"a": None}),
        ("{}", {}),
    ],
)
def test_a_mapping_of_texts_is_whole(text, found):
    assert fields(f'{{"m": {text}}}').map_of_texts("m") == found


@pytest.mark.parametrize("value", ["1", "1.5", "true", "null", '"x"'])
def test_values_of_a_long_mapping_are_converted_together(monkeypatch, value):
    """A text of a MiB has 100,000 numbers, whose conversion by a call each took 0.1 s of the event loop."""
    found = fields('{"m": {' + ",".join(f'"{key}": {value}' for key in range(300)) + "}}")
    single = []
    monkeypatch.setattr(jackson_fields, "_as_text", lambda *_: single.append(0))
    assert len(found.map_of_texts("m")) == 300
    assert not single


@pytest.mark.parametrize("value", ["1", "true", '"x"'])
def test_texts_of_a_long_list_are_converted_together(monkeypatch, value):
    found = fields('{"l": [' + ",".join([value] * 300) + "]}")
    single = []
    monkeypatch.setattr(jackson_fields, "_as_text", lambda *_: single.append(0))
    assert found.texts("l") == [value.strip('"')] * 300
    assert not single


@pytest.mark.parametrize("last", ["null", "[]", "{}", '"\\ud800"'])
def test_an_odd_last_value_costs_no_call_for_each_value(monkeypatch, last):
    """Behind 250,000 texts in a MiB such a value had each of them converted by a call of its own, 0.1 s."""
    found = fields('{"l": [' + '"x",' * 300 + last + '], "m": {' + '"k": "x",' * 300 + f'"last": {last}' + "}}")
    single = []
    monkeypatch.setattr(jackson_fields, "_as_text", lambda *_: single.append(0))
    for read in (lambda: found.texts("l"), lambda: found.map_of_texts("m")):
        with contextlib.suppress(FieldError):
            read()
    assert not single


@pytest.mark.parametrize("text", ['["x", null]', "[[]]", "[1, {}]"])
def test_a_list_with_other_values_is_refused(text):
    with pytest.raises(FieldError):
        fields(f'{{"l": {text}}}').texts("l")


def test_texts_of_a_list_are_whole():
    assert fields('{"l": ["\\ud800", 1]}').texts("l") == ["?", "1"]


def test_null_is_no_object():
    assert Fields.of("null") is None


@pytest.mark.parametrize("text", ["", "x", "[]", "1", "[" * 100_000])
def test_a_text_without_an_object_is_refused(text):
    with pytest.raises(FieldError):
        Fields.of(text)


@pytest.mark.parametrize("value", ["[]", "{}", '"x"', "1e400", "9223372036854775808"])
def test_a_value_that_is_no_number_is_refused(value):
    with pytest.raises(FieldError, match="n is"):
        fields(f'{{"n": {value}}}').number("n")


def test_a_value_of_another_kind_is_refused():
    found = fields('{"a": {"x": 1}, "b": [], "c": 1}')
    for read in (
        lambda: found.text("a"),
        lambda: found.texts("a"),
        lambda: found.map_of_texts("b"),
        lambda: found.texts("c"),
    ):
        with pytest.raises(FieldError):
            read()
