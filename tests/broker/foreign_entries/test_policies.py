import pytest

from magnetar.broker.foreign_entries.config import ConvertingConfig
from magnetar.broker.foreign_entries.policies import ConversionPolicy, effective_policy
from magnetar.converters.outcome import FailurePolicy

CONFIG = ConvertingConfig((), failure_policy="raw", park_ordered="block", dead_letter_attempts=4)


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
