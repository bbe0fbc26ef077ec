"""Bodies are read as leniently as Apache Pulsar reads them, and no more."""

import msgspec
import pytest

from magnetar.broker.compat.jackson_body import decode_body
from magnetar.broker.policies.values import (
    AutoSubscriptionCreation,
    BacklogQuota,
    DispatchRate,
    EntryFilters,
    InactiveTopicPolicies,
    SubscriptionType,
)


@pytest.mark.parametrize(
    ("raw", "kind", "value"),
    [
        (b"null", int, None),
        (b"3", int, 3),
        (b"1.9", int, 1),
        (b'" 7 "', int, 7),
        (b"1", bool, True),
        (b"0", bool, False),
        (b'"true"', bool, True),
        (b"2", str, "2"),
        (b"true", str, "true"),
        (b"2", float, 2.0),
        (b'"2.5"', float, 2.5),
        (b'["bad","Shared"]', list[SubscriptionType | None], [None, "Shared"]),
        (b'{"a":1,"b":true}', dict[str, str], {"a": "1", "b": "true"}),
        (b'{"unknown":1}', DispatchRate, DispatchRate()),
        (b'{"ratePeriodInSecond":null}', DispatchRate, DispatchRate()),
        (b'{"policy":"bad","limitSize":"5"}', BacklogQuota, BacklogQuota(limit_size=5)),
        (b'{"inactiveTopicDeleteMode":"x"}', InactiveTopicPolicies, InactiveTopicPolicies()),
        (b'"t"', str | BacklogQuota, "t"),
        (b"true", AutoSubscriptionCreation, AutoSubscriptionCreation(allow_auto_subscription_creation=True)),
        (b'"false"', AutoSubscriptionCreation, AutoSubscriptionCreation()),
        (b'"f"', EntryFilters, EntryFilters(entry_filter_names="f")),
        (b"{}", str | BacklogQuota, BacklogQuota()),
    ],
)
def test_taken(raw, kind, value):
    assert decode_body(raw, kind) == value


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"{bad", int),
        (b'{"a\xff":1}', dict[str, str]),
        (b"true", int),
        (b'"x"', int),
        (b"1e999", int),
        (b"[]", int),
        (b"1.5", bool),
        (b'"yes"', bool),
        (b"{}", str),
        (b'"x"', float),
        (b"3", list[str]),
        (b"3", dict[str, str]),
        (b"[]", DispatchRate),
        (b"[" * 100_000, list[str]),
    ],
)
def test_refused(raw, kind):
    with pytest.raises(msgspec.DecodeError):
        decode_body(raw, kind)
