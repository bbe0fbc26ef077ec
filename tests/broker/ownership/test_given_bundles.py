"""The running counts equal the counts over all bundles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.ownership.given_bundles import GivenBundles

bundles = st.builds("t/{}/{}".format, st.integers(0, 2), st.integers(0, 3))
steps = st.lists(
    st.tuples(bundles, st.sampled_from(["a", "b", None]), st.sampled_from([None, 1, 1, 2])),
    max_size=40,
)


@given(steps)
def test_counts_are_those_of_all_bundles(taken):
    found, expected, reported = GivenBundles(), {}, {}
    for bundle, broker, at in taken:
        if broker is None:
            found.take(bundle)
            expected.pop(bundle, None)
            continue
        found.give(bundle, broker, at)
        expected[bundle] = broker, at
        if at is not None:
            reported[broker] = at
    assert sorted(found) == sorted(expected)
    for bundle in expected:
        assert found.get(bundle) == expected[bundle][0]
    for broker in ("a", "b", "no"):
        of_broker = {bundle for bundle, (name, _) in expected.items() if name == broker}
        assert found.count(broker) == len(of_broker)
        assert found.of_broker(broker) == of_broker
        for number in range(3):
            wanted = {each for each in of_broker if each.startswith(f"t/{number}/")}
            assert set(found.of_namespace(broker, f"t/{number}")) == wanted
        last = reported.get(broker, 1)
        since = set(found.coming(broker, last))
        assert since <= {bundle for bundle, value in expected.items() if value == (broker, last)}
        assert list(found.coming(broker, last + 1)) == []


def test_bundles_that_come_are_those_since_the_last_report():
    found = GivenBundles()
    found.give("t/n/1", "a", 5)
    found.give("t/n/2", "a", 5)
    found.give("t/n/3", "a")
    assert found.coming("a", 5) == ["t/n/1", "t/n/2"]
    first = found.coming("a", 5)
    found.give("t/n/4", "a", 5)
    assert found.coming("a", 5) is first, "the list grows at its end"
    found.give("t/n/1", "b", 7)
    assert found.coming("a", 5) == ["t/n/2", "t/n/4"]
    assert found.coming("a", 5) is not first
    found.give("t/n/5", "a", 6)
    assert (found.coming("a", 6), found.coming("a", 5)) == (["t/n/5"], [])
    found.clear()
    assert (list(found), found.count("a"), found.coming("a", 6)) == ([], 0, [])


def test_bundles_that_a_namespace_lost_count_no_more():
    found = GivenBundles()
    for number in range(4):
        found.give(f"t/n/{number}", "ab"[number % 2], 1)
    found.give("t/m/0", "a", 1)
    found.keep("t/n", ["t/n/1", "t/n/2", "t/n/7"])
    assert sorted(found) == ["t/m/0", "t/n/1", "t/n/2"]
    assert (found.count("a"), found.count("b"), found.coming("a", 1)) == (2, 1, ["t/n/2", "t/m/0"])
