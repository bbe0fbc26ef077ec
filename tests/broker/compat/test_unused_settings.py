"""Every setting of Apache Pulsar is shown: by the table of settings, or with its default among the unused settings."""

import pathlib

import pytest

from magnetar.broker.compat.unused_settings import unused_settings
from magnetar.broker.setting_areas.ignored import is_ignored
from magnetar.broker.setting_areas.refused import REFUSED
from magnetar.broker.settings import SETTINGS

TABLE = pathlib.Path(__file__).resolve().parents[2] / "vectors" / "pulsar_settings.tsv"
ROWS = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith(("#", "key\t"))]
OWN = {key for key, _, source in ROWS if source == "ServiceConfiguration"}


def test_no_setting_in_force_is_among_them():
    assert not unused_settings(2, standalone=True).keys() & SETTINGS.keys()


def test_with_the_settings_in_force_they_are_those_of_apache_pulsar():
    assert unused_settings(2, standalone=True).keys() | SETTINGS.keys() >= OWN


def test_each_of_them_is_ignored_or_refused_and_has_a_harmless_value():
    for key, text in unused_settings(2, standalone=True).items():
        if key in REFUSED:
            assert REFUSED[key].allows(text.strip("[]")), key
        else:
            assert is_ignored(key), key


@pytest.mark.parametrize(("processors", "threads"), [(1, "8"), (4, "8"), (16, "32")])
def test_numbers_of_threads_follow_the_processors(processors, threads):
    found = unused_settings(processors, standalone=False)
    assert found["numIOThreads"] == str(2 * processors)
    assert found["numHttpServerThreads"] == threads


def test_a_member_of_a_cluster_is_no_standalone():
    assert unused_settings(1, standalone=True)["isRunningStandalone"] == "true"
    assert unused_settings(1, standalone=False)["isRunningStandalone"] == "false"
