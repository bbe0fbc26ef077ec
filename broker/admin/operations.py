"""What operators do with a topic now and then: end it, compact it, ask how that goes."""

from starlette.responses import Response

from magnetar.broker.admin.api import MessagePosition
from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import RestError, done, json_response, precondition
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import existing_parts, shown_position, single_topic, topic_missing, topic_parts
from magnetar.broker.auth.table import TOPIC_ADMIN, TOPIC_PRODUCE
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()


@routes.post(TOPIC + "/terminate", TOPIC_ADMIN)
async def terminate(call: Call) -> Response:
    name = single_topic(call)
    if not name.persistent:
        raise RestError(406, "Termination of a non-persistent topic is not allowed")
    return json_response(shown_position(await call.topics.terminate(name)))


@routes.post(TOPIC + "/terminate/partitions", TOPIC_ADMIN)
async def terminate_partitions(call: Call) -> Response:
    name = call.topic()
    if call.topics.partition_count(name) is None:
        if call.topics.exists(name):
            raise RestError(405, "Termination of a non-partitioned topic using partitioned-terminate is not allowed")
        raise topic_missing(name)
    ended = {str(p.partition): shown_position(await call.topics.terminate(_persistent(p))) for p in topic_parts(call)}
    return json_response(ended)


@routes.put(TOPIC + "/compaction", TOPIC_PRODUCE)
async def compact(call: Call) -> Response:
    for part in existing_parts(call):
        await call.topics.compact(_persistent(part))
    return done()


@routes.get(TOPIC + "/compaction", TOPIC_PRODUCE)
async def compaction_status(call: Call) -> Response:
    status = await call.topics.compaction_status(_persistent(single_topic(call)))
    return json_response({"status": status.status, "lastError": status.last_error})


@routes.put(TOPIC + "/offload", TOPIC_ADMIN)
async def offload(call: Call) -> Response:
    single_topic(call)
    raise precondition("There is no storage to offload to")


@routes.get(TOPIC + "/offload", TOPIC_ADMIN)
async def offload_status(call: Call) -> Response:
    single_topic(call)
    nothing = shown_position(MessagePosition(-1, -1))
    return json_response({"status": "NOT_RUN", "lastError": "", "firstUnoffloadedMessage": nothing})


def _persistent(name: TopicName) -> TopicName:
    if not name.persistent:
        raise RestError(405, f"{name}: not allowed on a non-persistent topic")
    return name
