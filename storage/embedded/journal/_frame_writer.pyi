# The compiled helper; what it does stands in frame_writer.py.
from collections.abc import Sequence

from magnetar.storage.embedded.files import Buffer

def copy(target: memoryview | bytearray, pieces: Sequence[Buffer], start: int, /) -> None: ...

class Writer:
    def __init__(self, async_bytes: int = 0, pause_s: float = 1.0) -> None: ...
    def write(
        self,
        fd: int,
        direct_fd: int,
        offset: int,
        prefix: bytes,
        generation: int,
        salt: int,
        sequence: int,
        written_ms: int,
        metadata_sequence: int,
        payload: Sequence[Buffer],
        checksums: Sequence[int] = (),
        /,
    ) -> None: ...
    def reap(self) -> tuple[int, float] | None: ...
    def fileno(self) -> int: ...
    def counts(self) -> tuple[int, int]: ...
    def close(self) -> None: ...
