"""Fixtures of tests under load: brokers of a module that serve alone, and a load for each test.

A test module makes its own fixtures: ``members = members_fixture(**settings)``, ``load = load_fixture()``.
"""

from __future__ import annotations

import pytest

from tests.cluster.broker_processes import initialize, serving
from tests.cluster.scenes import loaded, members_named

TWO = ("f1", "f2")


def members_fixture(*, services="cluster", names=TWO, **settings):
    """A fixture of the module: brokers of these names on the fixture ``services``, which list no others."""

    @pytest.fixture(scope="module")
    def members(request, tmp_path_factory):
        cluster = request.getfixturevalue(services)
        initialize(cluster)
        directory = tmp_path_factory.mktemp("members")
        with serving(members_named(names, directory, cluster.zookeeper, **settings)) as started:
            yield started

    return members


def load_fixture(*, services="cluster"):
    """A fixture of a test: a load on the module's fixture ``members``, begun with all bookies, which new ledgers
    need.
    """

    @pytest.fixture
    def load(request, members):
        request.getfixturevalue(services).make_whole()
        with loaded(members) as made:
            yield made

    return load
