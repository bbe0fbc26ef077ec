import pytest

from magnetar.broker.foreign_entries.config import (
    ConversionPolicy,
    ConvertingConfig,
    ConvertingSettingsError,
    effective_policy,
)
from magnetar.broker.settings import Settings
from magnetar.converters.outcome import FailurePolicy

CONFIG = ConvertingConfig((), failure_policy="raw", park_ordered="block", dead_letter_attempts=4)


def test_settings_become_plain_values():
    config = ConvertingConfig.of(
        Settings(
            message_converters=("kafka",),
            message_converter_settings=("kafka.mode=kop", " kafka.key = utf8 "),
            message_converter_timeout_millis=1500,
            message_converter_cache_size_mb=2,
            max_message_size=1000,
            message_converter_breaker_failure_percent=20,
        )
    )
    assert config.values == {"kafka.mode": "kop", "kafka.key": "utf8"}
    assert (config.timeout_s, config.cache_bytes) == (1.5, 2 << 20)
    assert config.limits.max_entry_bytes == 1000 + 10 * 1024
    assert config.breaker.failure_percent == 20


@pytest.mark.parametrize("pair", ["kafka", "mode=kop", "kafka.mode"])
def test_an_invalid_pair_is_named(pair):
    with pytest.raises(ConvertingSettingsError, match=f"'{pair}' is not name.key=value"):
        ConvertingConfig.of(Settings(message_converter_settings=(pair,)))


def test_the_event_loop_inflates_little():
    config = ConvertingConfig((), inline_max_bytes=1000)
    assert config.inline_limits.allowed(10) == config.inline_limits.allowed(1000) == 8000
    assert config.limits.allowed(1000) > 8000
    assert config.inline_limits.max_headers < 10_000 < config.limits.max_headers


def test_settings_rule_where_no_property_says_otherwise():
    assert effective_policy(CONFIG) == ConversionPolicy(FailurePolicy.RAW, True, 4)
    assert effective_policy(CONFIG, {}, {"other": "x"}) == effective_policy(CONFIG)


def test_the_more_particular_property_wins():
    namespace = {"messageConverterFailurePolicy": "skip", "messageConverterParkOrdered": "pass"}
    topic = {"messageConverterFailurePolicy": " DLQ ", "messageConverterDeadLetterAttempts": "7"}
    assert effective_policy(CONFIG, namespace, topic) == ConversionPolicy(FailurePolicy.DLQ, False, 7)


@pytest.mark.parametrize(
    "nonsense",
    [
        {"messageConverterFailurePolicy": "drop"},
        {"messageConverterParkOrdered": "maybe"},
        {"messageConverterDeadLetterAttempts": "0"},
        {"messageConverterDeadLetterAttempts": "-1"},
        {"messageConverterDeadLetterAttempts": "many"},
    ],
)
def test_nonsense_is_as_good_as_absent(nonsense):
    assert effective_policy(CONFIG, nonsense) == effective_policy(CONFIG)
