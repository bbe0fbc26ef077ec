from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from magnetar.broker.memory_account import MemoryAccount, MemoryLimits

LIMITS = MemoryLimits(total=100, per_address=60, per_connection=40)


def test_shares_of_a_total_always_have_room_for_two_frames():
    assert MemoryLimits.of_total(800, 10) == MemoryLimits(800, 400, 100, 100)
    assert MemoryLimits.of_total(16, 10) == MemoryLimits(16, 20, 20, 2)


def test_the_last_part_of_the_total_is_for_addresses_that_use_little():
    """320 connections of two addresses that did not read large messages stopped the producers of all addresses."""
    account = MemoryAccount(MemoryLimits.of_total(8000, 10))
    slow = [account.share("12"[number % 2]) for number in range(8)]
    for each in slow:
        each.set("output", 900)
    honest, further = account.share("3"), account.share("3")
    assert slow[0].is_over and not slow[0].fits(1)
    assert not honest.is_over and honest.fits(200) and not honest.fits(251)
    honest.set("clients", 200)
    assert not honest.is_over and not further.is_over and further.fits(50) and not further.fits(51)
    honest.set("clients", 251)
    assert honest.is_over, "the address does not use little"
    honest.set("clients", 200)
    slow[0].set("output", 1501)
    slow[1].set("output", 0)
    assert not further.is_over
    slow[2].set("output", 1800)
    slow[3].set("output", 1000)
    assert account.used_bytes > 8000
    assert further.is_over


def test_connections_that_use_little_go_on_beyond_the_limit_of_their_address():
    account = MemoryAccount(MemoryLimits.of_total(64_000, 10))
    slow = [account.share("1") for _ in range(5)]
    for each in slow:
        each.set("output", 6500)
    honest = account.share("1")
    assert slow[0].is_over
    assert not honest.is_over and honest.fits(125) and not honest.fits(126)
    slow[0].set("output", 10_100)
    assert honest.is_over


def test_each_share_is_a_limit_of_its_own():
    account = MemoryAccount(LIMITS)
    a, b, c = account.share("1"), account.share("1"), account.share("2")
    a.set("frame", 40)
    assert not a.is_over and not a.fits(1) and b.fits(20) and not b.fits(21)
    a.set("frame", 41)
    assert a.is_over and not b.is_over
    b.set("output", 30)
    assert b.is_over and not c.is_over  # the address
    c.set("frame", 30)
    assert c.is_over  # the broker
    a.close()
    assert not b.is_over and not c.is_over
    assert account.used_bytes == 60 and account.most_bytes == 101


def test_connections_go_on_in_the_order_in_which_they_began_to_wait():
    account, went_on = MemoryAccount(LIMITS), []
    big = account.share("0")
    big.set("frame", 40)
    others = [account.share(str(n), lambda n=n: went_on.append(n)) for n in range(1, 4)]
    for each in others:
        each.set("frame", 25)
    for each in others:
        each.wait()
        each.wait()
    assert account.waiting == 3 and account.waits == 3
    big.set("frame", 24)
    assert went_on == [1, 2, 3] and account.waiting == 0


def test_one_over_its_own_share_does_not_hold_up_those_behind_it():
    account, went_on = MemoryAccount(LIMITS), []
    greedy = account.share("1", lambda: went_on.append("greedy"))
    modest = account.share("2", lambda: went_on.append("modest"))
    greedy.set("frame", 50)
    modest.set("frame", 51)
    greedy.wait()
    modest.set("frame", 39)
    modest.set("output", 12)
    modest.wait()
    assert went_on == []
    modest.set("output", 1)
    assert went_on == ["modest"]
    greedy.set("frame", 40)
    assert went_on == ["modest", "greedy"]


def test_a_closed_share_holds_nothing_and_is_not_called():
    account = MemoryAccount(LIMITS)
    gone = account.share("1", lambda: 1 / 0)
    gone.set("frame", 500)
    gone.wait()
    gone.close()
    gone.close()
    gone.set("frame", 7)
    gone.wait()
    assert account.used_bytes == 0 and account.waiting == 0 and not account._addresses


class Accounts(RuleBasedStateMachine):
    """The sums are right at any time, and no connection waits while nothing is over its share."""

    limits = LIMITS

    def __init__(self):
        super().__init__()
        self.account = MemoryAccount(self.limits)
        self.shares, self.parts = [], {}

    @rule(address=st.sampled_from("ab"))
    def open(self, address):
        share = self.account.share(address)
        self.shares.append((address, share))
        self.parts[share] = {}

    @rule(data=st.data(), kind=st.sampled_from(["frame", "output"]), size=st.integers(0, 70))
    def set(self, data, kind, size):
        if self.shares:
            _, share = data.draw(st.sampled_from(self.shares))
            share.set(kind, size)
            self.parts[share][kind] = size
            if share.is_over:
                share.wait()

    @rule(data=st.data())
    def close(self, data):
        if self.shares:
            index = data.draw(st.integers(0, len(self.shares) - 1))
            _, share = self.shares.pop(index)
            share.close()
            del self.parts[share]

    @invariant()
    def sums(self):
        assert self.account.used_bytes == sum(sum(parts.values()) for parts in self.parts.values())
        for name in "ab":
            expected = sum(sum(self.parts[share].values()) for address, share in self.shares if address == name)
            found = self.account._addresses.get(name)
            assert (found.used if found else 0) == expected

    @invariant()
    def nobody_waits_for_nothing(self):
        for _, share in self.shares:
            assert not share.is_waiting or share.is_over


class AccountsOfSmallUsers(Accounts):
    limits = MemoryLimits(total=100, per_address=60, per_connection=40, for_small=64)


TestAccounts = Accounts.TestCase
TestAccountsOfSmallUsers = AccountsOfSmallUsers.TestCase
