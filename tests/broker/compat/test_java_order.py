"""Lists come in the order of Java's hash tables, as recorded from Apache Pulsar."""

from magnetar.broker.compat.java_order import collected_order, java_order, java_text_key

NAMES = ["sub", "a", "zz", "sub-1", "b", "my-subscription", "sub-2", "c", "x", "other", "s1", "s2", "s10"]


def test_eleven_names_in_the_smallest_table():
    order = ["zz", "sub", "a", "my-subscription", "b", "other", "c", "x", "sub-2", "s1", "sub-1"]
    assert java_order(NAMES[:11], concurrent=True) == order


def test_the_twelfth_name_doubles_the_table():
    order = ["zz", "sub", "a", "my-subscription", "b", "other", "c", "sub-2", "sub-1", "x", "s1", "s2"]
    assert java_order(NAMES[:12], concurrent=True) == order


def test_a_plain_table_doubles_one_name_later():
    assert java_order(NAMES[:12]) != java_order(NAMES[:12], concurrent=True)
    assert java_order(NAMES[:13]) == java_order(NAMES[:13], concurrent=True)


def test_a_name_given_twice_is_there_once():
    assert java_order(["b", "a", "b"]) == ["a", "b"]


def test_null_shares_the_first_slot_with_the_empty_name():
    assert java_order(["null", None, "a", ""]) == [None, "", "a", "null"]
    assert java_order(["", None]) == ["", None]


def test_a_collected_table_lists_later_names_of_a_slot_first():
    assert java_order(["zz", "aa"]) == ["zz", "aa"]
    assert collected_order(["zz", "aa"]) == ["aa", "zz"]


def test_a_collected_table_doubles_with_the_fourteenth_name():
    in_sixteen_slots = [name for name in collected_order(NAMES) if name != "s10"]
    assert in_sixteen_slots == collected_order(NAMES[:12])
    assert [name for name in collected_order([*NAMES, "y"]) if name not in ("s10", "y")] != in_sixteen_slots


def test_texts_are_sorted_by_their_code_units():
    assert sorted(["\uff5e", "\U0001f600", "é", "b9", "b10", "Beta"], key=java_text_key) == [
        *("Beta", "b10", "b9", "é", "\U0001f600", "\uff5e")
    ]
