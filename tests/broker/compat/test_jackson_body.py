"""Bodies are read as leniently as Apache Pulsar reads them, and no more."""

import sys

import msgspec
import pytest

from magnetar.broker.compat.jackson_body import Int32, decode_body
from magnetar.broker.policies.values import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DispatchRate,
    EntryFilters,
    InactiveTopicPolicies,
    SubscriptionType,
)


class Rate(msgspec.Struct):
    rate: float = -1.0
    on: bool = True
    name: str = "n"
    most: int | None = None
    limit: Int32 = -1


def test_values_of_earlier_versions_beyond_32_bits_stay_readable():
    stored = msgspec.json.encode(DispatchRate(dispatch_throttling_rate_in_msg=2**40))
    assert msgspec.json.decode(stored, type=DispatchRate).dispatch_throttling_rate_in_msg == 2**40


@pytest.mark.parametrize(
    ("raw", "kind", "value"),
    [
        (b"null", int, None),
        (b"3", int, 3),
        (b"1.9", int, 1),
        (b" -1.5E+400 ", int, -int(sys.float_info.max)),
        (b'" 7 "', int, 7),
        (b'"+7"', int, 7),
        (b'"null"', int, 0),
        (b'"\\u0000"', bool, False),
        (b'" null "', int | None, None),
        (b'"null"', float, 0.0),
        (b"\xef\xbb\xbf7", int, 7),
        (b'"TRUE"', bool, True),
        (b"1", bool, True),
        (b"0", bool, False),
        (b'"true"', bool, True),
        (b"2", str, "2"),
        (b"true", str, "true"),
        (b"2", float, 2.0),
        (b'"2.5"', float, 2.5),
        (b'["bad","Shared"]', list[SubscriptionType | None], [None, "Shared"]),
        (
            b'[0,"1",4," Failover ","01"]',
            list[SubscriptionType | None],
            ["Exclusive", "Shared", None, "Failover", None],
        ),
        (b'{"policy":1}', BacklogQuota, BacklogQuota(policy="producer_exception")),
        (b'{"defaultNumPartitions":""}', AutoTopicCreation, AutoTopicCreation()),
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
        (b'{"limitSize":-9223372036854775808}', BacklogQuota, BacklogQuota(limit_size=-(2**63))),
        (b'{"limitTime":"2147483647"}', BacklogQuota, BacklogQuota(limit_time=2**31 - 1)),
        (b'{"rate":1e30}', Rate, Rate(rate=1e30)),
        (b'{"rate":null,"on":null,"name":null,"most":null,"limit":null}', Rate, Rate(0.0, on=False, limit=0)),
        (b'{"rate":100000000000000000000}', Rate, Rate(rate=1e20)),
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
        (b"[1e999]", list[int]),
        (b"[]", int),
        (b"1.5", bool),
        (b'"yes"', bool),
        (b'"tRUE"', bool),
        (b'"1_0"', int),
        (b'"1_0"', float),
        (b'"TRUE"', AutoSubscriptionCreation),
        (b"[1.5]", list[SubscriptionType | None]),
        (b'{"policy":[1]}', BacklogQuota),
        (b"{}", str),
        (b'"x"', float),
        (b"3", list[str]),
        (b"3", dict[str, str]),
        (b"[]", DispatchRate),
        (b"[" * 100_000, list[str]),
        (b'{"limitSize":9223372036854775808}', BacklogQuota),
        (b'{"limit":-9223372036854775809}', BacklogQuota),
        (b'{"limitTime":2147483648}', BacklogQuota),
        (b'{"defaultNumPartitions":"-2147483649"}', AutoTopicCreation),
        (b'[{"ratePeriodInSecond":1e10}]', list[DispatchRate]),
    ],
)
def test_refused(raw, kind):
    with pytest.raises(msgspec.DecodeError):
        decode_body(raw, kind)
