"""Named brokers in a file of their owner, and the choice of the broker that a command calls."""

import json

import pytest

from magnetar.cli.contexts import Context, ContextFile, context_path
from magnetar.cli.errors import CommandLineError, ConfigurationError, NotFoundError
from magnetar.cli.target import chosen_target, from_client_conf, with_auth


@pytest.fixture
def environ(tmp_path):
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


def test_a_saved_context_is_found_again_and_private(environ):
    file = ContextFile.load(environ)
    file.put("prod", Context("pulsar://mq:6650", token="file:/t"))
    file.put("dev", Context("pulsar://127.0.0.1:6650"))
    file.save()
    again = ContextFile.load(environ)
    assert again.current == "prod"
    assert again.contexts == file.contexts
    assert again.path.stat().st_mode & 0o777 == 0o600
    again.select("dev")
    again.remove("prod")
    again.save()
    assert ContextFile.load(environ).current == "dev"


def test_secrets_are_not_shown():
    assert Context(token="ey.secret").shown() == {"token": "(a token)"}
    assert Context(token="env:T", basic="me:pw").shown() == {"token": "env:T", "basic": "me:(a password)"}


@pytest.mark.parametrize("text", ["{", "[]", '{"contexts": {"a": 1}}', '{"contexts": []}'])
def test_a_damaged_file_is_named(environ, text):
    path = context_path(environ)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"contexts\.json is damaged"):
        ContextFile.load(environ)


def test_names_that_are_none_are_refused(environ):
    file = ContextFile.load(environ)
    with pytest.raises(CommandLineError):
        file.put("../x", Context())
    with pytest.raises(NotFoundError, match="known: none"):
        file.get("x")


def test_defaults_are_those_of_a_laptop(environ):
    target = chosen_target(Context(), None, environ)
    assert (target.service_url, target.admin_url) == ("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080")


def test_flags_beat_the_environment_which_beats_the_context(environ):
    file = ContextFile.load(environ)
    file.put("prod", Context("pulsar://context:6650", "http://context:8080", token="context"))
    file.save()
    environ |= {"MAGNETAR_URL": "pulsar://variable:6650"}
    target = chosen_target(Context(token="flag"), None, environ)
    assert target.name == "prod"
    assert (target.service_url, target.admin_url) == ("pulsar://variable:6650", "http://context:8080")
    assert target.credentials.token == "flag"
    with pytest.raises(NotFoundError):
        chosen_target(Context(), "nosuch", environ)


def test_the_admin_address_follows_from_the_service_url_and_back(environ):
    assert chosen_target(Context("pulsar+ssl://mq:7000"), None, environ).admin_url == "https://mq:8443"
    assert chosen_target(Context(admin_url="https://mq:1"), None, environ).service_url == "pulsar+ssl://mq:6651"


@pytest.mark.parametrize("flags", [Context("http://x"), Context(admin_url="mq:8080"), Context("pulsar://")])
def test_invalid_addresses_are_refused(environ, flags):
    with pytest.raises(CommandLineError):
        chosen_target(flags, None, environ)


def test_pulsars_client_conf_is_read(environ, tmp_path):
    conf = tmp_path / "client.conf"
    conf.write_text(
        "# a comment\nwebServiceUrl=http://mq:8080/\nbrokerServiceUrl=pulsar://mq:6650\n"
        "authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken\nauthParams=file:///etc/token\n"
    )
    found = from_client_conf(conf)
    assert (found.service_url, found.admin_url, found.token) == (
        "pulsar://mq:6650",
        "http://mq:8080/",
        "file:/etc/token",
    )
    environ["PULSAR_CLIENT_CONF"] = str(conf)
    assert chosen_target(Context(), None, environ).admin_url == "http://mq:8080/"
    environ["PULSAR_CLIENT_CONF"] = str(tmp_path / "nosuch")
    with pytest.raises(ConfigurationError):
        chosen_target(Context(), None, environ)


@pytest.mark.parametrize(
    ("plugin", "params", "wanted"),
    [
        ("a.b.AuthenticationToken", "token:abc", {"token": "abc"}),
        ("a.b.AuthenticationToken", '{"token": "abc"}', {"token": "abc"}),
        ("token", "env:T", {"token": "env:T"}),
        ("basic", '{"userId": "u", "password": "p"}', {"basic": "u:p"}),
        ("a.AuthenticationTls", "tlsCertFile:/c,tlsKeyFile:/k", {"tls_cert": "/c", "tls_key": "/k"}),
    ],
)
def test_pulsars_authentication_flags(plugin, params, wanted):
    assert with_auth(Context(), plugin, params).to_json() == wanted


def test_another_plugin_is_refused():
    with pytest.raises(ConfigurationError, match="only token, basic and tls"):
        with_auth(Context(), "a.AuthenticationAthenz", json.dumps({}))
