"""Requests to one replica after another: the next when a replica fails or takes long. The first good answer counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from magnetar.bookkeeper.errors import BookKeeperError, ClientClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from magnetar.bookkeeper.background import Background

__all__ = ["AllFailedError", "first_good"]

T = TypeVar("T")


class AllFailedError(BookKeeperError):
    """All attempts failed; ``errors`` has their errors in the order of the failures."""

    def __init__(self, errors: Sequence[BookKeeperError]) -> None:
        super().__init__(*errors)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        return "; ".join(map(str, self.errors))


async def first_good(
    attempts: Sequence[Callable[[], Coroutine[object, object, T]]], delay_s: float, background: Background
) -> T:
    """Return the result of the first attempt that succeeds, and cancel the attempts that still run.

    A further attempt starts after each failure, and after `delay_s` without a result; the delay doubles each time. With
    `delay_s` 0 a further attempt starts only after a failure. An attempt fails with a BookKeeperError.

    Raises AllFailedError when all attempts failed.
    """
    errors: list[BookKeeperError] = []
    running: list[asyncio.Task[T]] = []
    left = list(attempts)
    try:
        while left or running:
            if left:
                running.append(background.awaited(left.pop(0)(), "read"))
            timeout = delay_s if left and delay_s else None
            done, _ = await asyncio.wait(running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            delay_s *= 1 if done else 2
            ended = [task for task in running if task in done]  # in the order of their start
            running = [task for task in running if task not in done]
            for task in ended:
                error = _error_of(task)
                if error is None:
                    return task.result()
                errors.append(error)
    finally:
        for task in running:
            task.cancel()
    raise AllFailedError(errors)


def _error_of(task: asyncio.Task[T]) -> BookKeeperError | None:
    if task.cancelled():
        return ClientClosedError("the client is closed")
    error = task.exception()
    if error is None or isinstance(error, BookKeeperError):
        return error
    raise error
