# The compiled helper; sorting.py describes it.
from collections.abc import Sequence

from magnetar.delayed.sorted_run import Columns

def sorted_columns(parts: Sequence[Columns], /) -> tuple[bytes, bytes, bytes]: ...
