"""Reports of a session on kazoo's threads, without a service."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from kazoo import exceptions as kazoo_errors

from magnetar.bookkeeper import events
from magnetar.bookkeeper.zookeeper.session import ZooKeeperSession, _Handler
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions


class Kazoo:
    """The part of kazoo's client that a session uses here."""

    def add_listener(self, listener):
        self.listener = listener

    def stop(self):
        return

    def close(self):
        return


@pytest.fixture
async def failing():
    """A session, and a call that makes one of kazoo's threads fail."""
    session = ZooKeeperSession(Kazoo(), ZooKeeperOptions("127.0.0.1:1"))
    handler = _Handler()
    handler.on_failure = session._on_kazoo_failure

    async def fail(error):
        def work():
            raise error

        await asyncio.to_thread(handler.spawn(work).join)
        await asyncio.sleep(0)

    return session, fail


def test_options_show_no_secret():
    options = ZooKeeperOptions("h:1", auth=(("digest", "user:secret"),), sasl={"password": "secret"})
    assert "secret" not in repr(options)
    assert "h:1" in repr(options)


async def test_a_thread_that_fails_at_the_start_fails_the_start(failing):
    session, fail = failing
    with structlog.testing.capture_logs() as logged:
        await fail(kazoo_errors.AuthFailedError())
    assert isinstance(session._starting.exception(), kazoo_errors.AuthFailedError)
    assert not logged


async def test_a_thread_that_fails_later_is_reported(failing):
    """The session never connects again then: the log has the reason."""
    session, fail = failing
    session._starting.set_result(None)
    with structlog.testing.capture_logs() as logged:
        await fail(kazoo_errors.SessionClosedRequireSaslError())
        await session.close()
        await fail(OSError("its socket is closed"))
    assert [(each["event"], each["error"]) for each in logged] == [
        (events.ZOOKEEPER_ENDED, "SessionClosedRequireSaslError()")
    ]
