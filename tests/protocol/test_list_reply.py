import pytest

from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.frames import encode_command
from magnetar.protocol.list_reply import ListReply

NAMES = [f"persistent://public/default/ä{number}" for number in range(300)]


def topics():
    base = pb.BaseCommand(type=pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    base.getTopicsOfNamespaceResponse.request_id = 7
    base.getTopicsOfNamespaceResponse.filtered = False
    base.getTopicsOfNamespaceResponse.topics_hash = "00ff00ff"
    base.getTopicsOfNamespaceResponse.changed = True
    return base, "getTopicsOfNamespaceResponse", "topics"


def watched():
    base = pb.BaseCommand(type=pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    base.watchTopicListSuccess.request_id, base.watchTopicListSuccess.watcher_id = 7, 1 << 40
    base.watchTopicListSuccess.topics_hash = "00ff00ff"
    return base, "watchTopicListSuccess", "topic"


@pytest.mark.parametrize("made", [topics, watched])
@pytest.mark.parametrize("parts", [[], [0], [1], [300], [100, 1, 199], [0, 300, 0]])
def test_the_parts_are_the_bytes_of_the_whole_command(made, parts):
    base, field, names = made()
    reply, done = ListReply(base, field, names), 0
    for count in parts:
        reply.add(NAMES[done : done + count])
        done += count
    found = reply.frame()
    getattr(getattr(base, field), names).extend(NAMES[:done])
    assert found == encode_command(base)
