"""Where the logs of many topics begin and end, in one request: what a job over the log plans with. Magnetar's own."""

from typing import Final

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import json_response
from magnetar.broker.admin.routes import NAMESPACE, RouteTable
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import OPEN, TOPIC_CONSUME
from magnetar.broker.compat.rest_errors import RestError
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

routes = RouteTable()
MOST_TOPICS: Final = 1000


@routes.post(NAMESPACE + "/logRanges", OPEN)  # checks the right topic by topic
async def log_ranges(call: Call) -> Response:
    """Body: full names of at most 1000 plain topics or partitions of the namespace.

    Answers by topic `firstIndex` and `endIndex` (half-open range of the broker entry index; null where entries have
    none), `entries`, `bytes`, `lastConfirmedEntry`, `firstLedger` (null without one), and with ?ledgers=true `ledgers`:
    [ledger, entries, closed] in order. A topic that does not exist is null.
    """
    names = await call.required_body(list[str], "the names of topics are required")
    if len(names) > MOST_TOPICS:
        raise RestError(400, f"at most {MOST_TOPICS} topics in one request")
    ledgers = call.flag("ledgers")
    answer: dict[str, object] = {}
    for text in names:
        name = _checked(call, text)
        found = await call.logs.log_range(name, ledgers=ledgers) if call.topics.exists(name) else None
        answer[text] = found
    return json_response(answer)


def _checked(call: Call, text: str) -> TopicName:
    try:
        name = TopicName.parse(text)
    except InvalidTopicNameError as e:
        raise RestError(412, str(e)) from e
    if not name.persistent or name.namespace != call.namespace:
        raise RestError(412, f"{text} is no persistent topic of {call.namespace}")
    if not call.api.authorizer.allows(call.identity, TOPIC_CONSUME, Target.of_topic(name)):
        raise RestError(TOPIC_CONSUME.denied_status, f"Unauthorized to consume {name}")
    return name
