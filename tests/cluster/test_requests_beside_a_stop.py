"""Admin requests through brokers that do not own the topic, while owners stop or die: each ends, and each answer is whole."""

from __future__ import annotations

import collections
import json
import threading
import time

import pytest
import requests

from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.loaded_brokers import members_fixture
from tests.cluster.scenes import PRODUCERS, SESSION_S, end, loaded

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
members = members_fixture(names=("q1", "q2", "q3"))
ALWAYS = {200, 204, 409}
EXPECTED = ALWAYS | {503, "connection"}
STARTS_S = 3
LIMIT_S = 30
"""Bound of one request; a lookup waits up to 20 s for the end of a session."""


def paths(load):
    topics = [lane.topic.replace("://", "/") for lane in load.lanes]
    namespace = topics[0].removeprefix("persistent/").rpartition("/")[0]
    for topic in topics[:4]:
        yield "GET", f"{topic}/stats"
        yield "GET", f"{topic}/internalStats"
        yield "GET", f"{topic}/subscriptions"
        yield "GET", f"{topic}/lastMessageId"
    parts = f"persistent/{namespace}/t"
    yield "GET", f"{parts}/partitioned-stats?perPartition=true"
    yield "GET", f"{parts}/subscriptions"
    yield "GET", f"{parts}/partitioned-internalStats"
    yield "PUT", f"{parts}/subscription/more"
    yield "GET", f"persistent/{namespace}"
    yield "GET", f"namespaces/{namespace}/topics"
    yield "GET", f"namespaces/{namespace}/bundles"
    yield "GET", "brokers/c1"
    yield "GET", "brokers/leaderBroker"
    yield "GET", "brokers/health"


def is_whole(path, _status, text):
    """Whether the answer has every part of the topic, every topic of the namespace, every subscription."""
    found = json.loads(text) if text.startswith(("{", "[")) else text
    if "partitioned-" in path:
        return len(found["partitions"]) == PRODUCERS and all(
            {"follow", "half"} <= set(part.get("subscriptions") or part["cursors"])
            for part in found["partitions"].values()
        )
    if path.endswith("/subscriptions"):
        return {"follow", "half"} <= set(found)
    if path.endswith("/topics") or (path.count("/") == 2 and path.startswith("persistent")):
        return sum("/t-partition-" in name for name in found) == PRODUCERS
    if path.endswith("stats"):
        return {"follow", "half"} <= set(found["subscriptions"])
    if path.endswith("internalStats"):
        return {"follow", "half"} <= set(found["cursors"])
    return True


def overlap(answer, away):
    """Whether the request was under way while a broker was away, or behind its start for a moment."""
    (_, began, took, *_), (left, back) = answer, away
    return began + took > left and began < back + STARTS_S


class Asking(threading.Thread):
    """Sends the requests to one broker, one after the other, until ``finish``."""

    def __init__(self, member, requests_of):
        super().__init__(daemon=True)
        self.member, self.answers = member, []
        self._requests, self._finished = requests_of, threading.Event()
        self.start()

    def run(self):
        while not self._finished.is_set():
            for method, path in self._requests:
                began = time.monotonic()
                try:
                    answer = requests.request(method, f"{self.member.http}/admin/v2/{path}", timeout=LIMIT_S)
                    found = answer.status_code, answer.text
                except requests.Timeout:
                    found = "timeout", ""
                except requests.RequestException as error:  # a broker that is gone, perhaps behind a redirect
                    found = "connection", repr(error)
                    time.sleep(0.2)
                self.answers.append((began, time.monotonic() - began, method, path, *found))
                if self._finished.is_set():
                    return

    def finish(self):
        self._finished.set()
        self.join(2 * LIMIT_S)


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_each_request_ends_and_each_answer_is_whole(members, how):
    with loaded(members, partitioned=True) as load:
        asked = list(paths(load))
        asking = [Asking(each, asked) for each in members]
        away = []
        for stopped in members[:2]:
            time.sleep(3)
            began = time.monotonic()
            getattr(stopped, how)()
            load.more()
            time.sleep(SESSION_S)
            stopped.start()
            away.append((began, time.monotonic()))
        time.sleep(5)
        for each in asking:
            each.finish()
        answers = [(each.member.name, *answer) for each in asking for answer in each.answers]
        slowest_s = max(answer[2] for answer in answers)
        counts = collections.Counter(str(answer[5]) for answer in answers)
        figure(f"requests beside a {how}", slowest_s=slowest_s, **counts)
        assert slowest_s < LIMIT_S
        assert [each for each in answers if each[5] not in EXPECTED] == []
        assert [each for each in answers if each[5] == 200 and not is_whole(*each[4:])] == []
        outside = [each for each in answers if each[5] not in ALWAYS and not any(overlap(each, gap) for gap in away)]
        assert outside == []
        end(f"requests beside a {how}", load, 4 * SESSION_S)
