"""Bodies of requests that name a message only in part, or not at all."""

from harness.figures import internal_figures
from harness.steps import backlog, published, rest
from transcript import scenario

BODIES = ({}, {"ledgerId": 0}, {"ledgerId": -1}, {"isExcluded": True}, {"properties": {"a": "b"}})


@scenario
def subscriptions_that_begin_at_ids_in_part(s):
    topic = s.topic()
    published(s, topic, 3)
    for i, body in enumerate(BODIES):
        status, answer = s.http("PUT", rest(topic, f"/subscription/s{i}"), body, quietly=True)
        s.note(f"{body}", [status, answer])
        s.note("backlog", backlog(s, topic))
    internal_figures(s, topic, "internal")


@scenario
def cursors_reset_to_ids_in_part(s):
    topic = s.topic()
    published(s, topic, 3)
    s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
    for body in BODIES:
        s.http("POST", rest(topic, "/subscription/s/skip_all"), quietly=True)
        status, answer = s.http("POST", rest(topic, "/subscription/s/resetcursor"), body, quietly=True)
        s.note(f"{body}", [status, answer, backlog(s, topic)])
        internal_figures(s, topic, "internal")


@scenario
def sizes_behind_ids_in_part(s):
    topic = s.topic()
    published(s, topic, 3)
    for body in BODIES:
        s.note(f"{body}", s.http("PUT", rest(topic, "/backlogSize"), body, quietly=True))
