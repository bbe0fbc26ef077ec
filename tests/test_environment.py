import re
import urllib.request
from pathlib import Path

import pytest

from magnetar.client.environment import VARIABLES
from tests.environment import isolate

ROOT = Path(__file__).resolve().parents[1]


def test_settings_of_the_users_shell_are_removed():
    kept = {"PATH": "/bin", "MAGNETAR_PURE": "1", "MAGNETAR_CRASH_LONG": "1", "HOME": "/h"}
    removed = dict.fromkeys([*VARIABLES.values(), "MAGNETAR_CONTEXT", "PULSAR_PREFIX_clusterName", "OTEL_SDK_DISABLED"])
    environ = kept | removed
    isolate(environ)
    assert {name: environ[name] for name in kept} == kept
    assert not environ.keys() & removed.keys()


@pytest.mark.parametrize("variable", ["no_proxy", "NO_PROXY"])
def test_hosts_that_need_no_proxy_are_kept(variable):
    environ = {variable: "internal.example"}
    isolate(environ)
    assert environ["no_proxy"] == environ["NO_PROXY"] == "internal.example,127.0.0.1,localhost,::1,[::1]"


def test_programs_use_a_locale_that_every_system_has():
    environ = {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "LANGUAGE": "tr"}
    isolate(environ)
    assert environ["LC_ALL"] == "C.UTF-8"
    assert "LANGUAGE" not in environ


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080"])
def test_requests_to_this_machine_go_to_no_proxy(monkeypatch, host):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert urllib.request.proxy_bypass(host)
    assert not urllib.request.proxy_bypass("broker.invalid:8080")


def test_each_test_with_a_long_form_is_part_of_make_crash_long():
    """Kills under all types of clients, kills of the import and full disks had a long form that no target ran."""
    (played,) = re.findall(r"MAGNETAR_CRASH_LONG=1 .* pytest (.*)", (ROOT / "Makefile").read_text())
    files = {path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    long = {path for path in files if re.search(r"environ\.get\(.MAGNETAR_CRASH_LONG", (ROOT / path).read_text())}
    assert len(long) > 15
    assert not [path for path in long if not {str(path), *map(str, path.parents)} & set(played.split())]
