import pickle

import pytest

from magnetar.client.address import Address
from magnetar.pipeline.connect_options import CONNECT_OPTIONS, ConnectOptions
from magnetar.pipeline.option_table import OptionError, flag, whole_number


def test_defaults_reach_a_broker_on_this_machine():
    options = ConnectOptions.parse({})
    assert options.service == Address("127.0.0.1", 6650, tls=False)
    assert options.admin_url == "http://127.0.0.1:8080"
    assert options.credentials.auth() == ("", b"")


def test_names_are_compared_without_case():
    options = ConnectOptions.parse({"Service.URL": "pulsar+ssl://b:1", "ADMIN.url": "https://b:2/", "TOKEN": "t"})
    assert (options.service, options.admin_url) == (Address("b", 1, tls=True), "https://b:2")
    assert options.credentials.auth() == ("token", b"t")
    assert pickle.loads(pickle.dumps(options)) == options


TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
BASIC = "org.apache.pulsar.client.impl.auth.AuthenticationBasic"


@pytest.mark.parametrize(
    ("plugin", "params", "shown"),
    [
        (TOKEN, "token:abc", ("token", b"abc")),
        (TOKEN, "abc", ("token", b"abc")),
        (TOKEN, '{"token": "abc"}', ("token", b"abc")),
        ("token", "env:PIPELINE_TOKEN", ("token", b"from-env")),
        (BASIC, '{"userId": "u", "password": "p"}', ("basic", b"u:p")),
        ("basic", "u:p", ("basic", b"u:p")),
        ("tls", "tlsCertFile:/c,tlsKeyFile:/k", ("tls", b"")),
    ],
)
def test_parameters_as_the_java_client_takes_them(plugin, params, shown, monkeypatch):
    monkeypatch.setenv("PIPELINE_TOKEN", "from-env")
    options = {"pulsar.client.authPluginClassName": plugin, "pulsar.client.authParams": params}
    assert ConnectOptions.parse(options).credentials.auth() == shown


def test_a_token_file_by_its_url(tmp_path):
    (tmp_path / "t").write_text("in-file\n")
    given = {"pulsar.client.authPluginClassName": TOKEN, "pulsar.client.authParams": f"file://{tmp_path}/t"}
    assert ConnectOptions.parse(given).credentials.auth() == ("token", b"in-file")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"service.url": "http://b"}, "no service URL"),
        ({"token": "file:/nowhere"}, "token file:/nowhere"),
        ({"pulsar.client.authPluginClassName": "kerberos"}, "authPluginClassName"),
        ({"pulsar.client.authPluginClassName": "basic", "pulsar.client.authParams": "{"}, "no JSON"),
        ({"pulsar.client.tlsAllowInsecureConnection": "yes"}, "true or false"),
    ],
)
def test_bad_values_name_the_option(options, text):
    with pytest.raises(OptionError, match=text):
        ConnectOptions.parse(options)


def test_flags_and_numbers():
    assert flag({"a": "TRUE"}, "A", False)
    assert whole_number({"n": "7"}, "n", 1) == 7
    for text in ("0", "-1", "x", ""):
        with pytest.raises(OptionError, match="at least 1"):
            whole_number({"n": text}, "n", 5)


def test_every_option_of_the_table_is_read():
    class Spy(dict):
        def __init__(self):
            super().__init__()
            self.seen = set()

        def get(self, key, default=None):
            self.seen.add(key)
            return default

    from magnetar.pipeline import connect_options

    spy = Spy()
    connect_options._credentials(spy)
    assert {o.name.lower() for o in CONNECT_OPTIONS} - spy.seen == {"service.url", "admin.url"}
