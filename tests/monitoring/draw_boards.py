"""Draws the boards of conf/grafana from a Prometheus that scrapes a broker under load: pictures for the documentation.

    python -m tests.monitoring.draw_boards [--seconds 100]

Grafana itself is not needed: each panel's queries go to Prometheus as Grafana sends them, and matplotlib draws the
answers at the panel's place. So the pictures prove the queries; the look is not Grafana's.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from datetime import UTC, datetime, timedelta

import matplotlib as mpl
import pulsar

import magnetar
from tests.waiting import wait_for

mpl.use("Agg")
from matplotlib import pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[2]
VARIABLES = ("instance", "namespace", "topic", "subscription")
FACTORS = {"bytes": (1 << 20, "MiB"), "Bps": (1 << 20, "MiB/s"), "binBps": (1 << 20, "MiB/s")}


def load(url, seconds):
    """Run producers, consumers that keep up, a consumer that does not, and delayed messages, until the time is over."""
    client = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull))
    end = time.monotonic() + seconds
    producers = {name: client.create_producer(name) for name in ("orders", "deliveries", "reminders")}
    fast = client.subscribe("orders", "billing", pulsar.ConsumerType.Shared)
    slow = client.subscribe("deliveries", "routing", pulsar.ConsumerType.Shared, receiver_queue_size=10)
    client.subscribe("reminders", "mails", pulsar.ConsumerType.Shared)
    number = 0
    while time.monotonic() < end:
        wave = 20 + 15 * (number // 40 % 3)
        for _ in range(wave):
            producers["orders"].send_async(b"o" * 300, None)
            producers["deliveries"].send_async(b"d" * 200, None)
        producers["reminders"].send_async(b"r", None, deliver_after=timedelta(seconds=10 + number % 20))
        producers["orders"].flush()
        for consumer, count in ((fast, wave), (slow, wave * 2 // 3)):
            for _ in range(count):
                consumer.acknowledge(consumer.receive(20_000))
        number += 1
        time.sleep(0.05)
    client.close()


def asked(url, **parameters):
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(parameters)}", timeout=20) as answer:
        return json.load(answer)["data"]["result"]


def series_of(prometheus, panel, begin, end):
    """(legend, times, values) of each series of a panel."""
    found = []
    for target in panel["targets"]:
        query = target["expr"]
        for name in VARIABLES:
            query = query.replace(f"${name}", ".*")
        for each in asked(f"{prometheus}/api/v1/query_range", query=query, start=begin, end=end, step=2):
            legend = target.get("legendFormat", "")
            for key, value in each["metric"].items():
                legend = legend.replace("{{" + key + "}}", value).replace("persistent://public/default/", "")
            found.append((legend, [t for t, _ in each["values"]], [float(v) for _, v in each["values"]]))
    return found


def draw(prometheus, board, path, begin, end):
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"])
    figure = plt.figure(figsize=(15, height / 3.2))
    for panel in panels:
        place = panel["gridPos"]
        axes = figure.add_axes(
            (
                place["x"] / 24 + 0.028,
                1 - (place["y"] + place["h"]) / height + 0.014,
                place["w"] / 24 - 0.045,
                place["h"] / height - 0.032,
            )
        )
        axes.set_title(panel["title"], fontsize=9, loc="left")
        found = series_of(prometheus, panel, begin, end)
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "")
        if panel["type"] == "stat":
            axes.axis("off")
            value = found[0][2][-1] if found else float("nan")
            text = f"{100 * value:.0f} %" if unit == "percentunit" else f"{value:g}"
            if unit.startswith("dateTime"):
                text = datetime.fromtimestamp(value / 1000, UTC).strftime("%H:%M:%S")
            axes.text(0.5, 0.5, text, fontsize=20, ha="center", va="center", color="#2a7f3f")
            continue
        factor, unit = FACTORS.get(unit, (1, unit))
        for legend, times, values in found:
            axes.plot([t - begin for t in times], [v / factor for v in values], label=legend[:40], linewidth=1.2)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(unit, fontsize=7)
        if found:
            axes.legend(fontsize=6, loc="upper left")
    figure.savefig(path, dpi=70)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=100)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, magnetar.start(statsUpdateFrequencyInSecs=5) as broker:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        configuration = pathlib.Path(folder, "prometheus.yml")
        target = broker.http_url.removeprefix("http://")
        configuration.write_text(
            "global: {scrape_interval: 1s}\n"
            f"scrape_configs: [{{job_name: magnetar, static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        arguments = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data"]
        with subprocess.Popen([*arguments, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL) as prometheus:
            url = f"http://{address}"
            wait_for(lambda: asked(f"{url}/api/v1/query", query="up"), 60, "Prometheus", every=0.2, ignoring=OSError)
            begin = time.time()
            load(broker.url, seconds)
            for name in ("broker", "topics"):
                board = json.loads((ROOT / f"conf/grafana/{name}.json").read_text())
                draw(url, board, ROOT / f"docs/pictures/board-{name}.png", begin, time.time())
            prometheus.terminate()


if __name__ == "__main__":
    main()
