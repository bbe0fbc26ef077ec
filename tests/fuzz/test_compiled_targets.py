"""A quick sample of ``tests/fuzz/compiled/run.sh``, without guidance and sanitizers, on the installed helpers."""

from __future__ import annotations

import importlib
import pathlib
import random

import pytest

from tests.fuzz.compiled.targets import TARGETS, seeds
from tests.fuzz.test_fuzz_targets import MUTATIONS, SEED, mutated

CORPUS = pathlib.Path(__file__).parent / "corpus" / "compiled"
PLACES = {
    "_speedups": "magnetar.protocol._speedups",
    "_entry_columns": "magnetar.protocol._entry_columns",
    "_deliveries": "magnetar.protocol._deliveries",
    "_acks": "magnetar.protocol._acks",
    "_key_hashes": "magnetar.protocol._key_hashes",
    "_sorting": "magnetar.delayed._sorting",
    "_add_frames": "magnetar.bookkeeper.wire._add_frames",
}


@pytest.mark.parametrize("name", TARGETS)
def test_helpers_do_as_their_twins(name):
    run, names = TARGETS[name]
    helpers = [pytest.importorskip(PLACES[each], reason="no compiler at install time") for each in names]
    chance, begin = random.Random(SEED), seeds(name)
    kept = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    for data in [*begin, *kept, *(mutated(chance.choice(begin + kept), chance) for _ in range(MUTATIONS))]:
        run(helpers if len(helpers) > 1 else helpers[0], data)


def test_every_helper_is_a_target():
    for place in PLACES.values():
        assert importlib.util.find_spec(place.rpartition(".")[0])
    built = {name for _, names in TARGETS.values() for name in names}
    sources = pathlib.Path(__file__).parents[2]
    compiled = {
        path.stem for room in ("protocol", "delayed", "bookkeeper/wire") for path in (sources / room).glob("_*.c")
    }
    assert built == compiled == set(PLACES)
