"""Delayed messages of a topic: how many wait and until when; cancelling one. Magnetar's own routes."""

from starlette.responses import Response

from magnetar.broker.admin.call import Call
from magnetar.broker.admin.responses import conflict, done, json_response
from magnetar.broker.admin.routes import TOPIC, RouteTable
from magnetar.broker.admin.topic_calls import single_topic
from magnetar.broker.auth.table import TOPIC_ADMIN, TOPIC_USE
from magnetar.storage.position import Position

routes = RouteTable()


@routes.get(TOPIC + "/delayedMessages", TOPIC_USE)
async def describe(call: Call) -> Response:
    """count, and the earliest and latest deliver_at_time in ms (absent when none waits)."""
    return json_response(await call.logs.delayed_messages(single_topic(call)))


@routes.delete(TOPIC + "/delayedMessages/ledger/{ledger}/entry/{entry}", TOPIC_ADMIN)
async def cancel(call: Call) -> Response:
    """Cancel the delivery of a delayed message; may be repeated. 409 when the message does not wait (any more)."""
    position = Position(call.number("ledger"), call.number("entry"))
    if not await call.logs.cancel_delayed(single_topic(call), position):
        raise conflict("The message is not waiting to be delivered")
    return done()
