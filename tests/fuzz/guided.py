"""``MAGNETAR_PURE=1 python tests/fuzz/guided.py TARGET [FOLDER] [libFuzzer's arguments]``: fuzzing guided by coverage.

Needs atheris. Inputs of ``corpus/guided/TARGET`` and those of ``targets.py`` come first; findings go to FOLDER.
An input that takes more than ``CPU_SECONDS`` of processor time, two minutes, or 1 GiB counts as a crash.
"""

from __future__ import annotations

import pathlib
import sys
import tempfile

import atheris

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

with atheris.instrument_imports(include=["magnetar", "h11"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS, limited, without_checksums

LONGEST_S = 120
"""libFuzzer's own limit also counts time in which other processes run."""


def main() -> None:
    name, arguments = sys.argv[1], sys.argv[2:]
    folder = arguments.pop(0) if arguments and not arguments[0].startswith("-") else tempfile.mkdtemp()
    target = TARGETS[name]
    begin = pathlib.Path(tempfile.mkdtemp())
    kept = HERE / "corpus" / "guided" / name
    with without_checksums():
        for number, data in enumerate(target.seeds()):
            (begin / str(number)).write_bytes(data)
    for path in kept.glob("*"):
        (begin / path.name).write_bytes(path.read_bytes())
    limits = [f"-timeout={LONGEST_S}", "-rss_limit_mb=1024", "-max_len=65536", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], folder, str(begin), *limits, *arguments], limited(target.run))
    if target.of_files:
        with without_checksums():
            atheris.Fuzz()
    else:
        atheris.Fuzz()


if __name__ == "__main__":
    main()
