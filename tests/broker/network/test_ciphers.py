"""Names of cipher suites, and choices that can be kept."""

import ssl

import pytest

from magnetar.broker.network.ciphers import TLS_1_3, choose_ciphers, openssl_name


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_files_for_java_are_understood(iana, openssl):
    assert openssl_name(iana) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def chosen(names, least=ssl.TLSVersion.TLSv1_2, most=ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = least, most
    choose_ciphers(context, names, "tlsCiphers")
    return {each["name"] for each in context.get_ciphers()}


def test_no_other_suites_are_spoken():
    name = "ECDHE-RSA-AES128-GCM-SHA256"
    assert chosen([name]) - TLS_1_3 == {name}
    assert chosen([name, *TLS_1_3]) - TLS_1_3 == {name}


def test_choices_that_cannot_be_kept_are_errors():
    with pytest.raises(ValueError, match="one by one"):
        chosen(["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"])
    with pytest.raises(ValueError, match="speak no older version"):
        chosen(sorted(TLS_1_3))
    assert chosen(sorted(TLS_1_3), least=ssl.TLSVersion.TLSv1_3)
    assert chosen(["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"], most=ssl.TLSVersion.TLSv1_2)
