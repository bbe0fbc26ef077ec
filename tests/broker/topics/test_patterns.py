import asyncio

import pytest

from magnetar.broker.topics.patterns import (
    BeyondRe2Error,
    InvalidPatternError,
    TopicPattern,
    UnknownSchemeError,
    cost_of_refusal,
    without_scheme,
)

NAMES = [
    "persistent://public/default/a",
    "persistent://public/default/ab-partition-0",
    "non-persistent://public/default/abc",
    "persistent://public/default/b.c",
]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("public/default/a.*", NAMES[:3]),
        ("persistent://public/default/a.*", NAMES[:3]),
        ("public/default/ab", NAMES[1:2]),
        ("public/default/", []),
        ("", []),
        (r"public/default/\Qb.c\E", NAMES[3:]),
        (r"\Qpublic/default/b.\E.*", NAMES[3:]),
        (r"public/default/\Qb.c", NAMES[3:]),
        (r".*/\p{Lower}{2,}", NAMES[1:3]),
        (r".*/[[:alpha:]]+", NAMES[:3]),
        (r".*/\P{Punct}+", NAMES[:3]),
        (r".*/(?<first>a)b?", NAMES[:2]),
        (r".*/(?i)AB(?s)C", NAMES[2:3]),
        (r"(?i).*/AB", NAMES[1:2]),
        ("^persistent://public/default/a$", NAMES[:1]),
        ("(?i)non-persistent://.*/AB.*", NAMES[1:3]),
        (r".*/[\p{Lower}_]{2,}", NAMES[1:3]),
        (r".*/[\P{Upper}]", NAMES[:1]),
        (r".*/[]\p{Alpha}]+", NAMES[:3]),
        (r".*/\p{L}+", NAMES[:3]),
        (r".*/\Q\p{Lower}\E", []),
    ],
)
def test_the_whole_name_without_scheme_and_partition_has_to_match(pattern, expected):
    assert TopicPattern(pattern).filter(NAMES) == expected


@pytest.mark.parametrize("pattern", ["(", "x://a", "persistent.*://a", "[a", r"\p{Nothing}"])
def test_invalid_patterns_are_refused(pattern):
    with pytest.raises(InvalidPatternError):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", [".*/(?!x).*", "(?<=a)b", "a++b", "(?>a)b", r"(a)\1", r"\pL{999}", "a{1001}"])
def test_patterns_beyond_re2_differ_from_invalid_patterns(pattern):
    with pytest.raises(BeyondRe2Error):
        TopicPattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+" * 9 + "b", "(a|aa)+" * 6 + "b", "(.*a){25}b", r"[a-q][^u-z]{13}x" * 3])
def test_no_pattern_takes_time_that_grows_faster_than_the_name(pattern):
    """A backtracking engine needs longer than the universe lasts for each of them."""
    names = [f"persistent://public/default/{'a' * 200}{i}" for i in range(300)]
    assert TopicPattern("public/default/" + pattern).filter(names) == []


async def test_a_long_list_is_filtered_in_slices():
    names = [f"persistent://public/default/{i}" for i in range(5000)]
    turns = 0

    def turn():
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    loop.call_soon(turn)
    assert await TopicPattern(".*/1.*").filter_in_slices(names) == [n for n in names if "/1" in n]
    assert turns > 5


def test_a_large_pattern_is_matched_in_smaller_slices():
    assert TopicPattern("((a{100}){10})").slice_names < TopicPattern(".*").slice_names


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("a.*", "a.*"),
        ("persistent://a.*", "a.*"),
        ("non-persistent://a.*", "a.*"),
        ("^persistent://a.*", "^a.*"),
        ("[a-z-]*non-persistent://a.*", "[a-z-]*a.*"),
    ],
)
def test_a_pattern_without_its_scheme(pattern, left):
    assert without_scheme(pattern) == left


def test_a_pattern_of_an_unknown_scheme():
    with pytest.raises(UnknownSchemeError):
        without_scheme("x://a")


def test_a_pattern_knows_its_memory_and_the_cost_of_its_compilation():
    usual, large = TopicPattern("public/default/orders-.*"), TopicPattern(r"(?:\pL|\pN|\pS){20}")
    assert (usual.kept_bytes, large.kept_bytes) == (8 << 10, 512 << 10)
    assert usual.cost < 8
    assert large.cost > 1000
    with pytest.raises(InvalidPatternError) as invalid:
        TopicPattern("(")
    with pytest.raises(InvalidPatternError) as too_large:
        TopicPattern(r"\pL{999}")
    assert (cost_of_refusal(invalid.value), cost_of_refusal(too_large.value)) == (0, 1024)
