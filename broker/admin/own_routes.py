"""Routes that only Magnetar has: delayed messages of a topic, and the ranges of the logs of many topics."""

from typing import Final

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import conflict, done, json_response
from magnetar.broker.admin.routes import NAMESPACE, TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import single_topic
from magnetar.broker.admin.wide_answers import OF_LEDGERS
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.auth.table import OPEN, TOPIC_ADMIN, TOPIC_CONSUME, TOPIC_USE
from magnetar.broker.errors import RestError
from magnetar.broker.slices import give_way
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName
from magnetar.storage.position import Position

routes = RouteTable()
MOST_TOPICS: Final = 1000
_ROWS_IN_ONE_TURN: Final = 256
"""Topics and ledgers whose ranges are gathered in a turn of the event loop."""


@routes.post(NAMESPACE + "/logRanges", OPEN)  # the handler checks the right for each topic
async def log_ranges(call: Call) -> Response:
    """Show the ranges of logs. Body: full names of at most 1000 persistent plain topics or partitions of the namespace.

    Answers by topic `firstIndex` and `endIndex` (half-open range of the broker entry index; null where entries have no
    index), `entries`, `bytes`, `lastConfirmedEntry`, `firstLedger` (null without ledgers), and with ?ledgers=true
    `ledgers`: [ledger, entries, closed] in order. A topic that does not exist is null.
    """
    names = await call.required_body(list[str], "the names of topics are required")
    if len(names) > MOST_TOPICS:
        raise RestError(400, f"at most {MOST_TOPICS} topics in one request")
    ledgers = call.flag("ledgers")
    answer: dict[str, object] = {}
    rows = 0
    for text in dict.fromkeys(names):
        name = _checked(call, text)
        found = await call.logs.log_range(name, ledgers=ledgers) if call.topics.exists(name) else None
        answer[text] = found
        rows += 1 + len(found.get("ledgers", ()) if found else ())
        if rows >= _ROWS_IN_ONE_TURN:
            rows = 0
            await give_way()
    return await call.long_answers.json(answer, OF_LEDGERS)


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


@routes.get(TOPIC + "/delayedMessages", TOPIC_USE)
async def describe(call: Call) -> Response:
    """Show the count of waiting messages, and their earliest and latest delivery time (ms; absent when none waits)."""
    return json_response(await call.logs.delayed_messages(single_topic(call)))


@routes.delete(TOPIC + "/delayedMessages/ledger/{ledger}/entry/{entry}", TOPIC_ADMIN)
async def cancel(call: Call) -> Response:
    """Cancel the delivery of a delayed message; may be repeated. 409 when the message does not wait for delivery."""
    position = Position(call.number("ledger"), call.number("entry"))
    if not await call.logs.cancel_delayed(single_topic(call), position):
        raise conflict("The message is not waiting to be delivered")
    return done()
