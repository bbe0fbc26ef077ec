"""Findings of `magnetar standalone --check` in the files and classes that settings name."""

import dataclasses

import pytest

from magnetar.broker.settings import Settings
from magnetar.broker.start_checks import unusable_files


def problems(**settings):
    return unusable_files(dataclasses.replace(Settings(), **settings))


def test_settings_that_name_no_files_have_no_problems():
    assert problems() == []
    assert problems(tls_certificate_file_path="/nowhere.pem") == [], "no listener uses the file"


def test_a_certificate_of_both_tls_listeners_is_reported_once():
    (text,) = problems(
        broker_service_port_tls=0,
        web_service_port_tls=0,
        tls_certificate_file_path="/nowhere.pem",
        tls_key_file_path="/nowhere-key.pem",
    )
    assert text == "tlsCertificateFilePath: /nowhere.pem: No such file or directory"


@pytest.mark.parametrize(
    ("providers", "key", "words"),
    [
        (("token",), "", "the token provider needs tokenSecretKey or tokenPublicKey"),
        (("token",), "file:///nowhere.key", "tokenSecretKey: /nowhere.key: No such file or directory"),
        (("nope",), "", "there is no provider 'nope'"),
    ],
)
def test_keys_and_providers(providers, key, words):
    (text,) = problems(authentication_enabled=True, authentication_providers=providers, token_secret_key=key)
    assert words in text


def test_all_problems_are_reported_together():
    found = problems(
        authentication_enabled=True,
        authentication_providers=("token",),
        broker_entry_metadata_interceptors=("nowhere.Interceptor",),
        broker_service_port_tls=0,
        tls_certificate_file_path="/nowhere.pem",
        tls_key_file_path="/nowhere-key.pem",
    )
    assert len(found) == 3
