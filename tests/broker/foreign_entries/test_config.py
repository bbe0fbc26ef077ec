import pytest

from magnetar.broker.foreign_entries.config import ConvertingConfig, ConvertingSettingsError
from magnetar.broker.settings import Settings


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
def test_what_is_no_pair_is_named(pair):
    with pytest.raises(ConvertingSettingsError, match=f"'{pair}' is not name.key=value"):
        ConvertingConfig.of(Settings(message_converter_settings=(pair,)))


def test_the_event_loop_inflates_little():
    config = ConvertingConfig((), inline_max_bytes=1000)
    assert config.inline_limits.allowed(10) == config.inline_limits.allowed(1000) == 8000
    assert config.limits.allowed(1000) > 8000
