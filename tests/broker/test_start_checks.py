"""Findings of `magnetar standalone --check` in the files, classes, addresses and directories that settings name."""

import dataclasses
import socket

import pytest

from magnetar.broker.settings import Settings
from magnetar.broker.start_checks import problems_of_a_start


def problems(**settings):
    return problems_of_a_start(dataclasses.replace(Settings(), **settings))


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


@pytest.mark.parametrize(
    ("converters", "values", "words"),
    [
        (("kafak",), (), "messageConverters: 'kafak' neither a short name"),
        (("nowhere.Converter",), (), "messageConverters: 'nowhere.Converter' module 'nowhere' cannot be imported"),
        (("kafka",), ("kafka.mode=fast",), "messageConverters: 'kafka': "),
        (("kafka",), ("mode=kop",), "messageConverterSettings: 'mode=kop' is not name.key=value"),
        (("bytes",), ("kafka.mode=kop",), "belong to no configured converter"),
    ],
)
def test_converters(converters, values, words, capsys):
    (text,) = problems(message_converters=converters, message_converter_settings=values)
    assert words in text
    assert problems(message_converters=("kafka",), message_converter_settings=("kafka.mode=kop",)) == []
    assert capsys.readouterr().out == "", "the check writes no lines of a log"


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


@pytest.mark.parametrize("address", ["192.0.2.1", "no.such.name.invalid", "10.0.0.256"])
def test_an_address_that_this_machine_does_not_have(address):
    (text,) = problems(bind_address=address)
    assert text.startswith(f"brokerServicePort: cannot listen on {address} port 6650: ")
    assert "bindAddress" in text
    assert problems(bind_address="0.0.0.0") == []
    assert problems(bind_address="localhost") == []


def test_a_port_that_this_broker_may_use_itself_is_no_problem():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert problems(broker_service_port=taken.getsockname()[1]) == []


def test_a_data_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    (text,) = problems(data_dir=str(tmp_path / "file/data"))
    assert text == f"dataDir: {tmp_path}/file is no directory; a start makes {tmp_path}/file/data there"
