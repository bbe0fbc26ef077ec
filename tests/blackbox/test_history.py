"""The checker of histories finds every kind of fault, and nothing in a history without one."""

from tests.blackbox.history import History


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def history(**options):
    clock = Clock()
    made = History(clock=clock, **options)
    made.clock = clock
    return made


def send(h, key, *numbers, receipt=True):
    for number in numbers:
        h.sent(key, number)
        if receipt:
            h.receipted(key, number)


def deliver(h, session, key, *numbers, ledger=1):
    for number in numbers:
        h.delivered(session, key, number, (ledger, number))


def interrupt(h):
    with h.interruption():
        h.clock.now += 0.1
    h.clock.now += 0.1


def kinds(h):
    return [problem.partition(":")[0] for problem in h.problems()]


def test_an_honest_history_has_no_problems():
    h = history()
    send(h, "a", 0, 1, 2)
    send(h, "b", 0)
    deliver(h, "c1", "a", 0, 1)
    h.acknowledged("c1", "a", 0)
    h.ended("c1")
    deliver(h, "c2", "a", 1, 2)
    deliver(h, "c2", "b", 0)
    assert h.problems() == []


def test_a_lost_message_is_found_only_when_it_had_a_receipt():
    h = history()
    send(h, "a", 0, 1)
    send(h, "a", 2, receipt=False)
    deliver(h, "c", "a", 0)
    assert h.problems() == ["lost: ('a', 1) has a receipt and was never delivered"]
    assert h.problems(complete=False) == []
    assert h.missing() == {("a", 1)}


def test_an_invented_message():
    h = history()
    deliver(h, "c", "a", 7)
    assert kinds(h) == ["invented"]


def test_order_across_sessions_and_within_one():
    h = history()
    send(h, "a", 0, 1, 2)
    deliver(h, "c1", "a", 0, 2)
    deliver(h, "c2", "a", 1)
    assert kinds(h) == ["reordered"]
    h = history()
    send(h, "a", 0, 1)
    deliver(h, "c1", "a", 0, 1)
    h.ended("c1")
    deliver(h, "c2", "a", 1, 0)  # both have a cause to come again, but not in this order
    assert kinds(h) == ["reordered"]


def test_order_does_not_matter_where_none_is_promised():
    h = history(ordered=False)
    send(h, "a", 0, 1)
    deliver(h, "c1", "a", 1, 0)
    assert h.problems() == []


def test_a_duplicate_needs_a_cause():
    h = history()
    send(h, "a", 0)
    deliver(h, "c1", "a", 0)
    deliver(h, "c2", "a", 0)
    assert kinds(h) == ["duplicated"]


def test_a_cause_explains_one_duplicate_not_two():
    h = history()
    send(h, "a", 0)
    deliver(h, "c1", "a", 0)
    h.ended("c1")
    deliver(h, "c2", "a", 0)
    deliver(h, "c3", "a", 0)
    assert kinds(h) == ["duplicated"]


def test_giving_back_explains_a_duplicate():
    h = history()
    send(h, "a", 0, 1)
    deliver(h, "c1", "a", 0, 1)
    h.gave_back("c1", "a", 0)
    deliver(h, "c1", "a", 0)
    h.gave_back("c1")
    deliver(h, "c1", "a", 0, 1)
    assert h.problems() == []
    deliver(h, "c1", "a", 1)
    assert kinds(h) == ["duplicated"]


def test_two_ids_need_a_restart_since_the_sending():
    h = history()
    send(h, "a", 0)
    deliver(h, "c1", "a", 0)
    h.delivered("c1", "a", 0, (9, 9))
    assert kinds(h) == ["stored twice"]
    h = history()
    send(h, "a", 0)
    interrupt(h)
    deliver(h, "c1", "a", 0)
    h.delivered("c1", "a", 0, (9, 9))
    assert h.problems() == []


def test_a_confirmed_ack_is_never_lost():
    h = history()
    send(h, "a", 0)
    deliver(h, "c1", "a", 0)
    h.ack_confirmed("c1", "a", 0)
    interrupt(h)
    deliver(h, "c2", "a", 0)
    assert kinds(h) == ["ack lost"]


def test_an_unconfirmed_ack_is_lost_only_within_the_window():
    for late, expected in ((0.5, []), (3.0, ["ack lost"])):
        h = history(ack_window_s=1.0)
        send(h, "a", 0)
        deliver(h, "c1", "a", 0)
        h.acknowledged("c1", "a", 0)
        h.clock.now += late
        interrupt(h)
        deliver(h, "c2", "a", 0)
        assert kinds(h) == expected


def test_an_ack_lost_within_the_window_may_show_behind_a_later_interruption():
    """On a busy machine a client may not be back before the broker is gone again."""
    for late, expected in ((0.5, []), (3.0, ["ack lost"])):
        h = history(ack_window_s=1.0)
        send(h, "a", 0)
        deliver(h, "c1", "a", 0)
        h.acknowledged("c1", "a", 0)
        h.clock.now += late
        interrupt(h)
        h.clock.now += 5.0
        interrupt(h)
        deliver(h, "c2", "a", 0)
        assert kinds(h) == expected


def test_an_ack_to_a_broker_that_is_gone_may_be_lost():
    h = history(settle_s=2.0)
    send(h, "a", 0)
    deliver(h, "c1", "a", 0)
    interrupt(h)
    h.acknowledged("c1", "a", 0)
    deliver(h, "c1", "a", 0)
    assert h.problems() == []


def test_an_ack_before_the_session_was_seen_to_be_back_may_be_lost_one_after_it_not():
    for acked_before in (True, False):
        h = history(settle_s=1.0)
        send(h, "a", 0, 1)
        interrupt(h)
        h.clock.now += 30  # the client takes long to come back
        deliver(h, "c", "a", 0)
        if acked_before:
            h.acknowledged("c", "a", 0)
        h.clock.now += 1
        h.reconnected()
        if not acked_before:
            h.clock.now += 0.1
            h.acknowledged("c", "a", 0)
        h.clock.now += 10
        interrupt(h)
        deliver(h, "c", "a", 0, 1)
        assert (kinds(h) == []) is acked_before
    assert kinds(h) == ["ack lost"]


def test_an_ack_lost_without_any_interruption():
    h = history()
    send(h, "a", 0)
    deliver(h, "c1", "a", 0)
    h.acknowledged("c1", "a", 0)
    deliver(h, "c2", "a", 0)
    assert sorted(kinds(h)) == ["ack lost", "duplicated"]


def test_an_interruption_explains_until_sessions_have_settled():
    h = history(settle_s=2.0)
    send(h, "a", 0, 1, 2)
    deliver(h, "c", "a", 0, 1)
    interrupt(h)
    deliver(h, "c", "a", 2, 0, 1, 2)  # 2 was still in the client's queue
    assert h.problems() == []
    h.clock.now += 5
    deliver(h, "c", "a", 2)
    assert h.problems() == []  # the last delivery may have been to the old session
    deliver(h, "c", "a", 2, 1)
    assert kinds(h) == ["duplicated", "reordered"]


def test_an_interruption_before_the_sending_explains_nothing():
    h = history(settle_s=2.0)
    interrupt(h)
    h.clock.now += 5
    send(h, "a", 0)
    deliver(h, "c", "a", 0)
    h.delivered("c", "a", 0, (9, 9))
    assert kinds(h) == ["stored twice"]


def test_a_seek_explains_everything_coming_again():
    h = history()
    send(h, "a", 0, 1)
    deliver(h, "c1", "a", 0, 1)
    h.ack_confirmed("c1", "a", 0)
    h.moved()
    deliver(h, "c1", "a", 0, 1)
    assert h.problems() == []


def test_a_long_list_is_cut_with_a_note():
    h = history()
    send(h, "a", *range(30))
    assert len(h.problems(limit=3)) == 4
    assert h.problems(limit=3)[-1] == "... and 27 more"
