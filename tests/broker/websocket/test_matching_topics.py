"""The topics of a pattern, by a watcher or by lists."""

import asyncio

import pytest

from magnetar.broker.tasks import TaskSet
from magnetar.broker.websocket import matching_topics
from magnetar.broker.websocket.errors import ParameterError, RequestFailedError, SessionRefusedError
from magnetar.broker.websocket.matching_topics import MatchingTopics
from magnetar.protocol import pulsar_api_pb2 as pb
from tests.broker.websocket.session_link import ScriptedLink
from tests.waiting import until

NAMESPACE = "persistent://public/default/"


def refusing(code, names=()):
    """A broker without watchers, with these topics."""

    def on(command):
        if command.type == pb.BaseCommand.WATCH_TOPIC_LIST:
            raise RequestFailedError(code, "no watchers")
        return pb.CommandGetTopicsOfNamespaceResponse(request_id=1, topics=names)

    return ScriptedLink(on)


async def test_a_watcher_reports_persistent_topics():
    link = ScriptedLink(
        lambda command: pb.CommandWatchTopicListSuccess(
            request_id=1, watcher_id=1, topics_hash="", topic=[NAMESPACE + "x", "non-" + NAMESPACE + "x"]
        )
    )
    reported = []
    matching = MatchingTopics(
        link, TaskSet(), "public/default", "public/default/x.*", lambda *each: reported.append(each)
    )
    assert await matching.first() == [NAMESPACE + "x"]
    update = pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_UPDATE)
    update.watchTopicUpdate.watcher_id, update.watchTopicUpdate.topics_hash = 1, ""
    update.watchTopicUpdate.new_topics.extend([NAMESPACE + "x2", "non-" + NAMESPACE + "x2"])
    update.watchTopicUpdate.deleted_topics.append(NAMESPACE + "x")
    link.tell(update)
    assert [(new, list(gone)) for new, gone in reported] == [([NAMESPACE + "x2"], [NAMESPACE + "x"])]


async def test_without_watchers_the_topics_are_listed_again(monkeypatch):
    monkeypatch.setattr(matching_topics, "LIST_EVERY_S", 0)
    names = [NAMESPACE + "x1", NAMESPACE + "y"]
    link, tasks, reported = refusing(pb.NotAllowedError, names), TaskSet(), []
    matching = MatchingTopics(link, tasks, "public/default", "public/default/x.*", lambda *each: reported.append(each))
    assert await matching.first() == [NAMESPACE + "x1"]
    names[:] = [NAMESPACE + "x2"]
    await until(lambda: ([NAMESPACE + "x2"], [NAMESPACE + "x1"]) in reported)
    await tasks.close()


async def test_a_list_that_fails_once_does_not_end_the_lists(monkeypatch):
    monkeypatch.setattr(matching_topics, "LIST_EVERY_S", 0)
    failures = iter([False, True, True])
    link, tasks, reported = refusing(pb.NotAllowedError), TaskSet(), []
    listing = link.on

    def on(command):
        if command.type == pb.BaseCommand.GET_TOPICS_OF_NAMESPACE:
            failed = next(failures, None)
            if failed:
                raise RequestFailedError(pb.ServiceNotReady, "later")
            if failed is None:
                return pb.CommandGetTopicsOfNamespaceResponse(request_id=1, topics=[NAMESPACE + "x"])
        return listing(command)

    link.on = on
    matching = MatchingTopics(link, tasks, "public/default", "public/default/x.*", lambda *each: reported.append(each))
    assert await matching.first() == []
    await until(lambda: ([NAMESPACE + "x"], []) in reported)
    await tasks.close()


async def test_other_refusals_and_invalid_patterns_refuse_the_session():
    link = refusing(pb.AuthorizationError)
    with pytest.raises(SessionRefusedError):
        await MatchingTopics(link, TaskSet(), "public/default", "x.*", print).first()
    for pattern in ("[", "x(?=y)"):
        with pytest.raises(ParameterError):
            MatchingTopics(link, TaskSet(), "public/default", pattern, print)
    await asyncio.sleep(0)
    assert not link.of(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE)
