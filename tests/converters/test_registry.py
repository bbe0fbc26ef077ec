import sys
import types
from typing import ClassVar

import pytest

from magnetar.converters.errors import ConverterSettingsError
from magnetar.converters.examples import EchoConverter
from magnetar.converters.interface import ExpansionLimits, MessageConverter
from magnetar.converters.registry import SHORT_NAMES, load_chain


class Good(EchoConverter):
    name = "good"
    log: ClassVar[list] = []

    def init(self, settings):
        self.log.append(("init", dict(settings.values), settings.limits))

    def close(self):
        self.log.append("close")


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("converter_samples")
    made.Good = Good
    monkeypatch.setitem(sys.modules, "converter_samples", made)
    Good.log.clear()
    return made


def variant(**members):
    return type("Variant", (Good,), {"name": "variant", **members})


def names(result):
    return [each.name for each in result.chain.converters]


def test_short_names_keep_their_order():
    assert names(load_chain(["bytes", " kafka ", "echo", "reject-all"])) == ["bytes", "kafka", "echo", "reject-all"]
    assert names(load_chain([])) == []


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_every_shipped_converter_fits(name):
    (each,) = load_chain([name]).chain.converters
    assert each.name == name
    assert isinstance(each.converter, MessageConverter)


def test_a_dotted_path_and_its_settings(module):
    limits = ExpansionLimits(max_ratio=3)
    result = load_chain(["converter_samples.Good", "kafka"], {"good.a.b": "1", "kafka.mode": "kop"}, limits=limits)
    assert names(result) == ["good", "kafka"]
    assert module.Good.log == [("init", {"a.b": "1"}, limits)]
    assert result.chain.limits is limits


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("kafak", "neither a short name"),
        ("", "neither a short name"),
        ("a b.C", "neither a short name"),
        ("no_such_module.Converter", "cannot be imported"),
        ("converter_samples.Missing", "has no 'Missing'"),
        ("converter_samples.instance", "is no class"),
        ("converter_samples.NeedsArguments", "without arguments"),
        ("converter_samples.NoConvert", r"no method convert\(\)"),
        ("converter_samples.Async", "must not be async"),
        ("converter_samples.TooFew", "2 arguments"),
        ("converter_samples.BadName", "name must match"),
        ("converter_samples.NoVersion", "version"),
        ("converter_samples.BadFormats", "entry_formats"),
        ("converter_samples.UpperFormats", "entry_formats"),
        ("converter_samples.InitFails", "init failed with OSError: disk"),
    ],
)
def test_unfit_converters_are_refused_by_name(module, spec, why):
    class NeedsArguments(Good):
        def __init__(self, value):
            """Never called."""

    async def convert(self, metadata, payload):
        """Never awaited."""

    def fail(self, settings):
        raise OSError("disk")

    module.instance = Good()
    module.NeedsArguments = NeedsArguments
    module.NoConvert = variant(convert=None)
    module.Async = variant(convert=convert)
    module.TooFew = variant(convert=lambda self, metadata: None)
    module.BadName = variant(name="Bad Name")
    module.NoVersion = variant(version="")
    module.BadFormats = variant(entry_formats=["x"])
    module.UpperFormats = variant(entry_formats=frozenset(("X",)))
    module.InitFails = variant(init=fail)
    with pytest.raises(ConverterSettingsError, match=why) as raised:
        load_chain([spec])
    assert repr(spec) in str(raised.value)
    result = load_chain([spec, "echo"], optional=True)
    assert names(result) == ["echo"]
    (problem,) = result.problems
    assert problem == str(raised.value)


def test_two_of_one_name_are_refused():
    with pytest.raises(ConverterSettingsError, match="second converter named 'echo'"):
        load_chain(["echo", "echo"])


def test_unknown_settings_are_refused(module):
    with pytest.raises(ConverterSettingsError, match=r"kafak\.mode"):
        load_chain(["converter_samples.Good"], {"kafak.mode": "kop"})
    assert module.Good.log[-1] == "close"
    assert load_chain(["echo"], {"kafka.mode": "kop"}, optional=True).problems


def test_bad_settings_name_the_converter():
    with pytest.raises(ConverterSettingsError, match=r"'kafka': kafka\.mode must be one of faithful, kop"):
        load_chain(["kafka"], {"kafka.mode": "best"})


def test_a_refusal_closes_running_converters(module):
    with pytest.raises(ConverterSettingsError):
        load_chain(["converter_samples.Good", "nothing"])
    assert module.Good.log[-1] == "close"


def test_a_module_that_fails_while_importing(tmp_path, monkeypatch):
    (tmp_path / "broken_converter.py").write_text("raise RuntimeError('at import')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConverterSettingsError, match="RuntimeError: at import"):
        load_chain(["broken_converter.Converter"])


def test_methods_without_a_signature_are_taken_on_trust(module):
    module.Builtin = variant(close=type)  # inspect finds no signature for it
    assert names(load_chain(["converter_samples.Builtin"])) == ["variant"]
