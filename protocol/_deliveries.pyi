# The compiled helper; deliveries.py describes it.
from typing import Any

def deliveries(buffer: Any, start: int, consumer_id: int, /) -> tuple[bytes, int]: ...
