"""The history of clients, each in its own order, and the promises checked on it.

Clients of a test record into one `History` (from any thread); `problems()` then lists the broken promises:

lost        a message with a receipt was never delivered
invented    a message was delivered that no client sent
reordered   the first deliveries of a key are not in the order of sending, or a session saw a key go backwards
duplicated  a message came a second time without a cause: its session ended, it was given back (nack, redeliver), the
            subscription was moved (seek), or its broker or topic went away in between
stored twice  a message has two ids although its producer had no cause to send it again
ack lost    an acknowledged message came again, though its acknowledgement was confirmed by a receipt, or is older than the
            documented window (a kill may cost the acknowledgements of the last `ack_window_s` seconds, no others)

A session is one life of a consumer: it ends when the consumer closes or its connection is gone. A client library that
reconnects by itself continues to deliver its queued messages until it is connected again; for `settle_s` seconds after
an interruption a session may therefore see old messages and their new copies mixed.
"""

import contextlib
import math
import threading
import time
from collections import defaultdict
from dataclasses import dataclass

ACK_WINDOW_S = 1.0
SETTLE_S = 2.0


@dataclass(frozen=True)
class Event:
    """One thing that happened. `number` counts the messages of a key, in the order of sending."""

    what: str
    at: float
    session: str = ""
    key: str = ""
    number: int = -1
    message_id: tuple = ()


class History:
    """Append-only; every recorder may be called from any thread."""

    def __init__(self, ordered=True, ack_window_s=ACK_WINDOW_S, settle_s=SETTLE_S, clock=time.monotonic):
        self.ordered, self.ack_window_s, self.settle_s, self._clock = ordered, ack_window_s, settle_s, clock
        self.events = []
        self._lock = threading.Lock()

    def _add(self, what, session="", key="", number=-1, message_id=()):
        with self._lock:
            self.events.append(Event(what, self._clock(), session, key, number, message_id))

    # records of producers
    def sent(self, key, number):
        self._add("sent", key=key, number=number)

    def receipted(self, key, number):
        self._add("receipted", key=key, number=number)

    # records of consumers
    def delivered(self, session, key, number, message_id):
        self._add("delivered", session, key, number, message_id)

    def acknowledged(self, session, key, number):
        """Record that the test passed the acknowledgement to the client library."""
        self._add("acknowledged", session, key, number)

    def ack_confirmed(self, session, key, number):
        """Record the answer to an acknowledgement."""
        self._add("ack confirmed", session, key, number)

    def gave_back(self, session, key="", number=-1):
        """Record a negative acknowledgement of one message, or (without key) of all messages that the session holds."""
        self._add("gave back", session, key, number)

    def ended(self, session):
        self._add("ended", session)

    # records of the test itself
    @contextlib.contextmanager
    def interruption(self):
        """A block in which the broker ends or the topic is unloaded: every session starts again."""
        self._add("interrupted")
        try:
            yield
        finally:
            self._add("restarted")

    def reconnected(self):
        """Record that sessions are connected again: a message sent since the interruption has come.

        On a busy machine the first such message may come long after `settle_s`.
        """
        self._add("reconnected")

    def moved(self):
        """Record that a seek moved the subscription."""
        self._add("moved")

    # the check
    def problems(self, complete=True, limit=10):
        """Broken promises, as text; with `complete` every message with a receipt must have been delivered by now."""
        with self._lock:
            events = list(self.events)
        found = _Checker(self, events).run(complete)
        return found[:limit] + ([f"... and {len(found) - limit} more"] if len(found) > limit else [])

    def count(self, what):
        with self._lock:
            return sum(1 for event in self.events if event.what == what)

    def highest(self, what):
        """The highest number of such an event; -1 when there is none."""
        with self._lock:
            return max((event.number for event in self.events if event.what == what), default=-1)

    def missing(self):
        """Messages with a receipt that no consumer got yet."""
        with self._lock:
            receipted = {(e.key, e.number) for e in self.events if e.what == "receipted"}
            return receipted - {(e.key, e.number) for e in self.events if e.what == "delivered"}


class _Checker:
    def __init__(self, history, events):
        self.history, self.events, self.found = history, events, []
        self.highest_first = {}  # by key: the highest number delivered for the first time
        self.highest_seen = {}  # by (session, key): the highest number since it last gave messages back
        self.last = {}  # by (key, number): index of its last delivery
        self.ids = defaultdict(set)  # by (key, number)
        self.acks = {}  # by (key, number): (time, confirmed)
        self.session_ended = {}  # by session: index
        self.gave_back = {}  # by (session, key, number) and (session, "", -1): index
        self.last_moved = -1  # index
        self.interrupted = (-1, -math.inf)  # index and time of the last interruption's beginning
        self.settled_at = -math.inf  # when sessions are connected again; +inf within an interruption
        self.sent_at = {}

    def run(self, complete):
        receipted, handlers = (
            {},
            {
                "delivered": self._delivered,
                "acknowledged": lambda _, e: self.acks.__setitem__((e.key, e.number), (e.at, False)),
                "ack confirmed": lambda _, e: self.acks.__setitem__((e.key, e.number), (e.at, True)),
                "gave back": self._gave_back,
                "ended": lambda i, e: self.session_ended.__setitem__(e.session, (i, e.at)),
                "interrupted": self._interrupted,
                "restarted": self._restarted,
                "reconnected": self._reconnected,
                "moved": self._moved,
                "sent": lambda i, e: self.sent_at.setdefault((e.key, e.number), (i, e.at)),
                "receipted": lambda _, e: receipted.setdefault((e.key, e.number), e.at),
            },
        )
        for index, event in enumerate(self.events):
            handlers[event.what](index, event)
        if complete:
            self.found += [
                f"lost: {each} has a receipt and was never delivered" for each in receipted if each not in self.last
            ]
        return self.found

    def _gave_back(self, index, event):
        self.gave_back[event.session, event.key, event.number] = index
        for session, key in list(self.highest_seen):
            if session == event.session and event.key in ("", key):
                del self.highest_seen[session, key]

    def _interrupted(self, index, event):
        """Drop the unconfirmed acknowledgements of the last moments: the interruption may cost them, and the messages
        may come again behind a later interruption.
        """
        self.interrupted, self.settled_at = (index, event.at), math.inf
        window_s = self.history.ack_window_s
        unsure = [each for each, (at, confirmed) in self.acks.items() if event.at - at <= window_s and not confirmed]
        for message in unsure:
            del self.acks[message]

    def _restarted(self, _index, event):
        self.settled_at = event.at + self.history.settle_s

    def _reconnected(self, _index, event):
        """Drop the unconfirmed acknowledgements since the interruption: no broker may have received them."""
        self.settled_at = max(self.settled_at, event.at)
        unsure = [each for each, (at, confirmed) in self.acks.items() if at >= self.interrupted[1] and not confirmed]
        for message in unsure:
            del self.acks[message]

    def _moved(self, index, _event):
        self.last_moved = index
        self.highest_seen.clear()
        self.acks.clear()

    def _delivered(self, index, event):
        message = (event.key, event.number)
        if message not in self.sent_at:
            self.found.append(f"invented: {message} was never sent")
        if self.history.ordered:
            self._check_order(event, message)
        self._check_stored_once(event, message)
        if message in self.last:
            self._check_cause(index, event, message)
        self.last[message] = index

    def _check_order(self, event, message):
        if message not in self.last:
            highest = self.highest_first.get(event.key, -1)
            if event.number < highest:
                self.found.append(f"reordered: {message} came first to {event.session} after {highest} of its key")
            self.highest_first[event.key] = max(highest, event.number)
        seen = self.highest_seen.get((event.session, event.key), -1)
        if event.at <= self.settled_at:
            seen = -1
        if event.number < seen:
            self.found.append(f"reordered: {event.session} saw {message} after {seen}")
        self.highest_seen[event.session, event.key] = max(seen, event.number)

    def _check_stored_once(self, event, message):
        self.ids[message].add(event.message_id)
        sent_index, sent_at = self.sent_at.get(message, (-1, math.inf))
        if len(self.ids[message]) > 1 and self.interrupted[0] < sent_index and self.settled_at < sent_at:
            self.found.append(f"stored twice: {message} has the ids {sorted(self.ids[message])}")

    def _check_cause(self, index, event, message):
        before = self.events[self.last[message]]
        causes = (
            self.session_ended.get(before.session, (-1, -math.inf))[0],
            self.gave_back.get((before.session, *message), -1),
            self.gave_back.get((before.session, "", -1), -1),
            self.last_moved,
            self.last[message] + 1 if before.at <= self.settled_at and self.interrupted[0] >= 0 else -1,
        )
        copy = len(self.ids[message]) > 1  # sent again by its producer, judged in _check_stored_once
        if max(causes) < self.last[message] and not copy:
            self.found.append(
                f"duplicated: {message} came to {before.session} and again to {event.session} without a cause"
            )
        self._check_ack(event, message, before, copy)

    def _check_ack(self, event, message, before, copy):
        ack = self.acks.get(message)
        if ack is None or copy:
            return
        at, confirmed = ack
        within = self.interrupted[1] <= at <= self.settled_at  # acknowledged to a broker that was already gone
        if 0 <= self.session_ended.get(before.session, (-1, -math.inf))[1] - at <= self.history.ack_window_s:
            within = True
        if confirmed or not within:
            how = "with a receipt" if confirmed else f"more than {self.history.ack_window_s} s before an interruption"
            self.found.append(f"ack lost: {message}, acknowledged {how}, came again to {event.session}")
