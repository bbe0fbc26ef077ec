from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from magnetar.broker.parsed_commands import ParsedCommands


def test_addresses_get_places_in_turn():
    places, taken = ParsedCommands(per_address=20, total=30), []

    def place(name, size=10):
        return places.place(name[0], size, lambda: taken.append(name))

    of_a = [place(f"a{number}") for number in range(5)]
    of_b = [place(f"b{number}") for number in range(2)]
    assert [each.is_taken for each in of_a + of_b] == [True, True, False, False, False, True, False]
    of_a[0].leave()
    of_b[0].leave()
    assert taken == ["a2", "b1"]
    of_a[3].leave()
    of_a[1].leave()
    of_a[1].leave()
    assert taken == ["a2", "b1", "a4"]


def test_a_command_that_is_alone_may_exceed_the_limits():
    places, taken = ParsedCommands(per_address=20, total=30), []
    large, small = [
        places.place(address, size, lambda: taken.append("small")) for address, size in (("a", 99), ("b", 1))
    ]
    assert large.is_taken and not small.is_taken
    large.leave()
    assert taken == ["small"] and small.is_taken


def test_a_small_command_does_not_pass_a_large_command_of_its_address():
    places, taken = ParsedCommands(per_address=20, total=30), []
    first = places.place("a", 15, lambda: None)
    large, small = places.place("a", 10, lambda: taken.append(10)), places.place("a", 1, lambda: taken.append(1))
    assert not small.is_taken
    large.leave()
    assert taken == [1]
    first.leave()
    assert taken == [1] and not places._waiting


def test_small_commands_of_other_addresses_do_not_keep_a_large_command_out():
    """Each place that became free went to a smaller command, and the large command waited for ever."""
    places, taken = ParsedCommands(per_address=20, total=30), []
    small = [places.place(address, 5, lambda: None) for address in "aaaabb"]
    assert all(each.is_taken for each in small)
    large = places.place("c", 10, lambda: taken.append("c"))
    for number, address in zip(range(6), "abbaab", strict=True):
        small.append(places.place(address, 5, lambda: None))
        small.pop(0).leave()
        if number:
            assert large.is_taken
    assert taken == ["c"]


class Places(RuleBasedStateMachine):
    """The limits hold, and no command waits alone."""

    def __init__(self):
        super().__init__()
        self.places, self.held = ParsedCommands(per_address=20, total=50), []

    @rule(address=st.sampled_from("abc"), size=st.integers(1, 25))
    def come(self, address, size):
        self.held.append(self.places.place(address, size, lambda: None))

    @rule(data=st.data())
    def go(self, data):
        if self.held:
            self.held.pop(data.draw(st.integers(0, len(self.held) - 1))).leave()

    @invariant()
    def limits(self):
        taken = [each for each in self.held if each.is_taken]
        assert sum(each.size for each in taken) <= 50 or len(taken) == 1
        for address in "abc":
            of_address = [each.size for each in taken if each.address == address]
            assert sum(of_address) <= 20 or len(of_address) == 1
        assert taken or not self.held
        assert self.places._used == sum(each.size for each in taken)


TestPlaces = Places.TestCase
