"""Delays for tests of delayed messages, on machines that are busy with other work as well."""

import time

import pytest

TICK_MS = 1000  # delayedDeliveryTickTimeMillis: without the strict setting a message may be so much early


def longer_and_longer(topic, seconds):
    """Topics and growing delays to try: on a busy machine a message with a short delay is due before the test looks for
    it.
    """
    for times in range(4):
        yield f"{topic}-{times}", seconds * 3**times
    pytest.fail("the machine is too slow for this test to say anything")


def is_before(due_seconds):
    """Whether it is too early for any message with this due time to be delivered."""
    return time.time() < due_seconds - TICK_MS / 1000
