"""Runs of the simulation in forks of a process that has imported the broker: ``python -m tests.simulation.forks``.

A run has a process of its own, in which sets of texts are walked in the same order each time and a planted bug stays.
The imports take the processor time of three histories, so a session of tests has them once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAINS = ("tests.simulation.__main__", "tests.simulation.planted")


@dataclass(frozen=True)
class Ran:
    """The exit code of a run and its output, errors included."""

    returncode: int
    output: str


class Forks:
    """The process that forks for each run, one run at a time; it starts with the first."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._process: subprocess.Popen[str] | None = None

    def run(self, module: str, *arguments: object) -> Ran:
        """Carry out ``main()`` of the module with the arguments; a run that is broken off ends with its process."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "tests.simulation.forks"],
                cwd=ROOT,
                env=os.environ | {"PYTHONHASHSEED": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        request = json.dumps([str(self._output), module, *map(str, arguments)])
        try:
            self._process.stdin.write(request + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
        except BaseException:
            self.close()
            raise
        return Ran(code, self._output.read_text())

    def close(self) -> None:
        """End the process, with a run that is under way."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def _run(output: str, module: str, arguments: list[str]) -> int:
    """The exit code of the run, in a fork."""
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = [module, *arguments]
    try:
        code = importlib.import_module(module).main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 2
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def main() -> None:
    for module in MAINS:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        output, module, *arguments = json.loads(line)
        pid = os.fork()
        if not pid:
            os._exit(_run(output, module, arguments))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    sys.unraisablehook = lambda _: None
    main()
