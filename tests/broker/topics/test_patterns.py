import pytest

from magnetar.broker.topics.patterns import InvalidPatternError, TopicPattern

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
    ],
)
def test_the_whole_name_without_scheme_and_partition_has_to_match(pattern, expected):
    assert TopicPattern(pattern).filter(NAMES) == expected


@pytest.mark.parametrize("pattern", ["(", "x://a", "persistent.*://a", "[a", r"\p{Nothing}"])
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(InvalidPatternError):
        TopicPattern(pattern)
