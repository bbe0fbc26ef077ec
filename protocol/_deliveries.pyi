# The compiled helper; what the function does stands in deliveries.py.
from typing import Any

def deliveries(buffer: Any, start: int, consumer_id: int, /) -> tuple[bytes, int]: ...
