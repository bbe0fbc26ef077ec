"""python -m bench [NAME ...] [--quick] [--rounds N] [--json FILE]: the broker beside the limits of the machine.

Without names every end-to-end scenario runs, each round once with this broker and once with the limit server (a minimal
C server that only makes frames durable) right after one another. Printed are medians over the rounds, min and max, the
ratio of the medians and the aim; the benchmark asserts no figure. ``components`` runs the benchmarks of single parts.
"""

from __future__ import annotations

import argparse
import gc
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from bench import servers
from bench.scenarios import SCENARIOS, Scenario
from magnetar.broker.descriptors import raise_limit

COMPONENTS = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("*_bench.py"))


def measure(scenario: Scenario, binary: str | None, rounds: int, scale: float) -> dict[str, dict[str, list[float]]]:
    """Figures by server and by figure's name, a value a round; the order of the two alternates."""
    starts = {"ours": lambda: servers.broker(pure=scenario.pure)}
    if scenario.limit and binary is not None:
        starts["limit"] = lambda: servers.limit(binary)
    figures: dict[str, dict[str, list[float]]] = {}
    for i in range(rounds):
        for who in list(starts) if i % 2 == 0 else reversed(list(starts)):
            gc.collect()
            for name, value in scenario.run(starts[who], scale, **scenario.arguments).items():
                figures.setdefault(who, {}).setdefault(name, []).append(value)
    return figures


def shown(values: list[float]) -> str:
    """Median (min-max)."""
    digits = 0 if max(values) >= 1000 else 2 if max(values) >= 1 else 3
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def rows(name: str, scenario: Scenario, figures: dict[str, dict[str, list[float]]]) -> list[str]:
    """Markdown rows: scenario, figure, broker, limit, broker / limit, aim."""
    lines, aim = [], scenario.aim
    for figure, ours in figures["ours"].items():
        limit = figures.get("limit", {}).get(figure)
        ratio = f"{statistics.median(ours) / statistics.median(limit):.2f}" if limit and min(limit) > 0 else "-"
        lines.append(f"| {name} | {figure} | {shown(ours)} | {shown(limit) if limit else '-'} | {ratio} | {aim} |")
        aim = ""
    return lines


def run_components(names: list[str]) -> None:
    for name in names:
        print(f"\n## {name}", flush=True)
        subprocess.run([sys.executable, str(pathlib.Path(__file__).with_name(f"{name}.py"))], check=False)


def main() -> None:
    known = [*SCENARIOS, "components", *COMPONENTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--quick", action="store_true", help="one round of a fifth of the messages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="every value of every round")
    options = parser.parse_args()
    if unknown := set(options.names) - set(known):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rounds, scale = (1, 0.2) if options.quick else (options.rounds, 1.0)
    chosen = [name for name in SCENARIOS if not options.names or name in options.names]
    results = {}
    raise_limit()
    with tempfile.TemporaryDirectory(prefix="magnetar-bench-") as folder:
        binary = servers.build_limit_server(folder)
        if binary is None:
            print("no C compiler with SSE 4.2 here: the limit server and the ratios to it are left out\n")
        if chosen:
            print(
                "| scenario | figure | ours: median (min-max) | limit | ours / limit | aim |\n|---|---|---|---|---|---|"
            )
        for name in chosen:
            try:
                figures = measure(SCENARIOS[name], binary, rounds, scale)
            except (OSError, RuntimeError) as error:
                print(f"| {name} | failed: {error!r} | | | | |", flush=True)
                continue
            results[name] = figures
            print("\n".join(rows(name, SCENARIOS[name], figures)), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    run_components(COMPONENTS if "components" in options.names else [n for n in COMPONENTS if n in options.names])


if __name__ == "__main__":
    main()
