"""All contenders in one interleaved run: python bench/contenders.py [--rounds 3] [--json FILE] [--plots FOLDER]

The limit server, this broker, this broker without syncs, pulsar-lite and a warm Apache Pulsar; those that are not on
the machine are left out, by name. All are started once and stay; each round takes every case, and within a case the
contenders work one after the other, in an order that turns with the rounds. Background writes of the case before are
not waited for. The first round warms up and does not count. Printed for each case: the median over the rounds [least -
most], its ratio to the limit server (or to Apache Pulsar), processor time a message, and resident memory afterwards.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from typing import TYPE_CHECKING, Self

from bench import chart, load, rivals, scenarios, servers

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Case:
    """A measured case. Of the result of `run`, `figure` and `more` are printed; `by_limit`: the limit server runs it."""

    run: Callable[..., dict[str, float]]
    arguments: dict[str, object]
    figure: str = "msg/s"
    by_limit: bool = True
    more: tuple[str, ...] = field(default=())


def _publish(count: int, size: int, window: int, **more: int) -> Case:
    arguments = {"count": count, "size": size, "window": window, **more}
    return Case(scenarios.publish, arguments)


CASES = {
    "1 KiB": _publish(150_000, 1024, 1000),
    "100 B": _publish(300_000, 100, 1000),
    "64 KiB": _publish(5_000, 65536, 64),
    "batches of 100 x 1 KiB": _publish(3_000, 1024, 20, batch=100),
    "eight producers": _publish(160_000, 1024, 250, producers=8),
    "one in flight": Case(scenarios.one_in_flight, {"count": 2_000}, "p50 ms", more=("p99 ms",)),
    "backlog": Case(scenarios.backlog, {"count": 100_000}, by_limit=False),
    "backlog, batched": Case(scenarios.backlog, {"count": 3_000, "batch": 100}, by_limit=False),
    "tail": Case(scenarios.tail, {"count": 100_000}, by_limit=False),
    "fan-out to 100": Case(scenarios.fan_out, {"count": 2_000, "consumers": 100}, by_limit=False),
    "1,000/s": Case(scenarios.paced, {"rate": 1_000, "seconds": 6}, "p99 ms", False, ("p50 ms",)),
    "10,000/s": Case(scenarios.paced, {"rate": 10_000, "seconds": 6}, "p99 ms", False, ("p50 ms",)),
    "1,000/s beside 50 MB/s": Case(
        scenarios.paced, {"rate": 1_000, "seconds": 6, "beside_mb_s": 50}, "p99 ms", False, ("p50 ms",)
    ),
    "10,000/s beside 50 MB/s": Case(
        scenarios.paced, {"rate": 10_000, "seconds": 6, "beside_mb_s": 50}, "p99 ms", False, ("p50 ms",)
    ),
}
CPU = "server µs CPU/msg"
_SHORTER = "Shorter bars are better"
ORDER = ("limit", "ours", "ours-nosync", "lite", "pulsar")


class Held:
    """A server that outlives the scenarios which use it."""

    def __init__(self, server: servers.Server):
        self.server, self.port, self.name = server, server.port, server.name
        self.cpu_seconds, self.rss_mb = server.cpu_seconds, server.rss_mb

    def wait_ready(self) -> Held:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def starters(work: str) -> dict[str, Callable[[], servers.Server]]:
    def limit() -> servers.Server:
        binary = servers.build_limit_server(work)
        if binary is None:
            raise rivals.AbsentError("needs a C compiler and SSE 4.2")
        return servers.limit(binary)

    makers = (limit, servers.broker, lambda: rivals.without_sync(work), rivals.lite, rivals.pulsar)
    return dict(zip(ORDER, makers, strict=True))


def one(case: Case, who: str, held: Held, scale: float) -> dict[str, float]:
    """The figures of one case, with the server's memory afterwards."""
    load.look_up = who == "pulsar"
    figures = dict(case.run(lambda: held, scale, **case.arguments))
    figures["MB"] = held.rss_mb()
    return figures


def spread(values: list[float]) -> str:
    """Median [least-most]."""
    digits = 0 if max(values) >= 1000 else 1 if max(values) >= 10 else 3
    return f"{statistics.median(values):,.{digits}f} [{min(values):,.{digits}f}-{max(values):,.{digits}f}]"


def rows(name: str, case: Case, figures: dict[str, list[dict[str, float]]]) -> list[str]:
    medians = {who: statistics.median(f[case.figure] for f in found) for who, found in figures.items()}
    base = next((who for who in ("limit", "pulsar") if who in medians), None)
    lines = []
    for who, found in figures.items():
        ratio = f"{medians[who] / medians[base]:.2f} of {base}" if base and medians[base] and who != base else ""
        cells = [name, who, f"{spread([f[case.figure] for f in found])} {case.figure}", ratio]
        cells += [", ".join(f"{key} {spread([f[key] for f in found])}" for key in case.more)]
        cells += [spread([f[CPU] for f in found]), f"{max(f['MB'] for f in found):,.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
        name = ""
    return lines


def draw(folder: str, rounds: int, results: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    """Pictures of rates, of times and of processor time; of times the quantiles that the table has."""
    pictures = (
        ("rates", "Messages a second", "/s", ("msg/s",), "Longer bars are better"),
        ("times", "Time from a message to its receipt or its consumer", " ms", ("p50 ms", "p99 ms"), _SHORTER),
        ("cpu", "Processor time of the server a message", " µs", (CPU,), _SHORTER),
    )
    for name, title, unit, wanted, better in pictures:
        bars = {
            f"{case}, {figure.removesuffix(' ms')}" if unit == " ms" else case: {
                who: _bar([f[figure] for f in all_of]) for who, all_of in found.items()
            }
            for case, found in results.items()
            for figure in wanted
            if found and figure in {CASES[case].figure, *CASES[case].more, CPU}
        }
        if bars:
            path = pathlib.Path(folder, f"contenders-{name}.svg")
            note = f"{better}. Median [least - most], number of rounds: {rounds}. Each case has a scale of its own."
            path.write_text(chart.chart(title, note, bars, unit))
            print(f"wrote {path}")


def _bar(values: list[float]) -> chart.Bar:
    return chart.Bar(statistics.median(values), min(values), max(values))


def chosen_of(text: str | None, known: tuple[str, ...]) -> list[str]:
    names = list(known) if text is None else [name.strip() for name in text.split(";")]
    if unknown := set(names) - set(known):
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are: {'; '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of messages")
    parser.add_argument("--only", help=f"contenders, separated by semicolons: {'; '.join(ORDER)}")
    parser.add_argument("--cases", help=f"cases, separated by semicolons: {'; '.join(CASES)}")
    parser.add_argument("--json", metavar="FILE", help="every figure of every round")
    parser.add_argument("--plots", metavar="FOLDER", help="pictures as SVG")
    options = parser.parse_args()
    contenders, cases = chosen_of(options.only, ORDER), chosen_of(options.cases, tuple(CASES))
    results: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in cases}
    with ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="contenders-"))
        held, makers = {}, starters(work)
        for who in contenders:
            try:
                held[who] = Held(stack.enter_context(makers[who]()).wait_ready())
            except (rivals.AbsentError, RuntimeError, OSError) as error:
                print(f"{who} is left out: {error}", flush=True)
        for number in range(options.rounds + 1):
            for name in cases:
                case = CASES[name]
                able = [who for who in held if who != "limit" or case.by_limit]
                turn = number % len(able) if able else 0
                for who in able[turn:] + able[:turn]:
                    try:
                        figures = one(case, who, held[who], options.scale)
                    except (OSError, RuntimeError, TimeoutError) as error:
                        print(f"{name}: {who} failed: {error!r}", flush=True)
                        continue
                    if number:
                        results[name].setdefault(who, []).append(figures)
            print(f"round {number} of {options.rounds}{'' if number else ', not counted'}", flush=True)
    print(
        "\n| case | contender | median [least-most] | ratio | also | CPU µs/msg | MB |\n|---|---|---|---|---|---|---|"
    )
    for name in cases:
        ordered = {who: results[name][who] for who in ORDER if who in results[name]}
        print("\n".join(rows(name, CASES[name], ordered)))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    if options.plots:
        pathlib.Path(options.plots).mkdir(parents=True, exist_ok=True)
        draw(
            options.plots,
            options.rounds,
            {name: {w: found[w] for w in ORDER if w in found} for name, found in results.items()},
        )


if __name__ == "__main__":
    main()
