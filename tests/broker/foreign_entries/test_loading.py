import pytest

from magnetar.broker.foreign_entries.config import ConvertingConfig, ConvertingSettingsError
from magnetar.broker.foreign_entries.frames import Welcome
from magnetar.broker.foreign_entries.loading import hello, is_builtin, is_foreign, load, load_builtin

FOREIGN = "tests.blackbox.bad_converters.Upper"


def test_builtin_converters():
    assert is_builtin("kafka")
    assert is_builtin(" magnetar.converters.examples.EchoConverter")
    assert not is_builtin(FOREIGN)


def test_foreign_converters_have_a_stand_in():
    config = ConvertingConfig(("kafka", FOREIGN, "bytes"), {"kafka.mode": "kop"})
    whole, welcome = load(hello(config, []))
    chain, problems = load_builtin(config, welcome)
    assert problems == ()
    assert [each.name for each in chain.converters] == ["kafka", "upper", "bytes"]
    assert [each.tag for each in chain.converters] == [each.tag for each in whole.converters]
    assert [is_foreign(each) for each in chain.converters] == [False, True, False]
    with pytest.raises(AssertionError, match="foreign code"):
        chain.converters[1].converter.convert(None, None)


def test_without_foreign_entries_no_worker_is_used():
    chain, _ = load_builtin(ConvertingConfig(("bytes",)), None)
    assert [each.name for each in chain.converters] == ["bytes"]


def test_refusals_name_the_problem():
    _, welcome = load(hello(ConvertingConfig(("kafka", "tests.missing.Nothing")), []))
    with pytest.raises(ConvertingSettingsError, match=r"tests\.missing"):
        load_builtin(ConvertingConfig(("kafka", "tests.missing.Nothing")), welcome)
    with pytest.raises(ConvertingSettingsError, match="loud"):
        load_builtin(ConvertingConfig(("kafka",), {"kafka.mode": "loud"}), None)


def test_optional_converters_are_left_out():
    config = ConvertingConfig(("tests.missing.Nothing", "bytes"), optional=True)
    _, welcome = load(hello(config, []))
    chain, problems = load_builtin(config, welcome)
    assert [each.name for each in chain.converters] == ["bytes"]
    assert "tests.missing" in problems[0]


def test_a_name_that_was_left_out_gets_no_settings():
    config = ConvertingConfig(("nonsense",), {"kafka.mode": "kop"}, optional=True)
    chain, problems = load_builtin(config, Welcome())
    assert not chain
    assert problems == ()
