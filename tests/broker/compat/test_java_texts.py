import pytest

from magnetar.broker.compat import java_texts


def test_wide_spaces_are_not_trimmed():
    assert java_texts.trimmed(" \x00a b\t") == "a b"
    assert java_texts.trimmed("\u3000a") == "\u3000a"


def test_a_form_is_decoded():
    assert java_texts.url_decoded("a+b%2Bc") == "a b+c"


@pytest.mark.parametrize("text", ["%", "a%2", "%zz"])
def test_an_incomplete_byte_is_refused(text):
    with pytest.raises(ValueError):
        java_texts.url_decoded(text)


def test_a_name_that_is_encoded_twice_survives_a_path_and_a_form():
    assert java_texts.encoded_twice("a b/c") == "a%2520b%252Fc"


@pytest.mark.parametrize("text", ["YQ==", "YQ"])
def test_base64_needs_no_padding(text):
    assert java_texts.base64_decoded(text) == b"a"


@pytest.mark.parametrize("text", ["*", "Y", "YQ="])
def test_other_texts_are_no_base64(text):
    with pytest.raises(ValueError):
        java_texts.base64_decoded(text)
