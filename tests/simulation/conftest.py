"""The process that runs the simulation for the tests of a session."""

import pytest

from tests.simulation.forks import Forks


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    found = Forks(tmp_path_factory.mktemp("simulation"))
    yield found
    found.close()
