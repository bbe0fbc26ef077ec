from urllib.parse import quote

import pytest

from magnetar.protocol.url_encoder import url_encoded, url_encoder_path

NAMES = [
    ("a b", "a+b"),
    ("*", "*"),
    ("~", "%7E"),
    ("a/b", "a%2Fb"),
    ("a+b", "a%2Bb"),
    ("ü", "%C3%BC"),
    ("a-b_c.d", "a-b_c.d"),
]


@pytest.mark.parametrize(("name", "encoded"), NAMES)
def test_names_are_encoded_as_by_java(name, encoded):
    assert url_encoded(name) == encoded


@pytest.mark.parametrize(("name", "encoded"), NAMES)
def test_a_quoted_path_becomes_the_path_of_apache_pulsar(name, encoded):
    assert url_encoder_path(f"/schemas/{quote(name, safe='')}/x") == f"/schemas/{encoded}/x"
