"""The program `troop` as a subprocess: where it is, how it is stopped, and what its errors say."""
from __future__ import annotations

import functools
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from types import FrameType, TracebackType
from typing import IO, Any, Optional, Type

KILL_AFTER_S = 10.0  # for the second signal, which kills the fleet without a checkpoint
INTERRUPTED = 130    # exit code: Ctrl-C, SIGTERM or SIGHUP; drained, resumable


class TrainingError(RuntimeError):
    """A run that could not start, or that failed. The text is the program's line. output: all that
    the program printed. exit_code: of the program; below 0: the signal that ended it. path: the run
    folder."""

    def __init__(self, message: str, output: str = "", exit_code: int = 1,
                 path: Optional[pathlib.Path] = None) -> None:
        super().__init__(message)
        self.output, self.exit_code, self.path = output, exit_code, path


def find_program(given: Optional[str] = None) -> str:
    """The path of the program: as given, of $TROOP_PROGRAM, in this package's folder bin, or in
    PATH. Raises FileNotFoundError."""
    for place, what in ((given, "program"), (os.environ.get("TROOP_PROGRAM"), "$TROOP_PROGRAM")):
        if place:
            found = shutil.which(place)
            if found is None:
                raise FileNotFoundError(f"{what} is {place}, which is not an executable file")
            return os.path.abspath(found)
    own = pathlib.Path(__file__).parent / "bin" / "troop"
    found = str(own) if os.access(own, os.X_OK) else shutil.which("troop")
    if found is None:
        raise FileNotFoundError("the program troop was not found; install it, add its folder to "
                                "PATH, or set TROOP_PROGRAM to it")
    return os.path.abspath(found)


def answer(program: str, words: list[str]) -> str:
    """What a command that ends at once prints. Raises TrainingError with its error."""
    ended = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, errors="replace", check=False)
    if ended.returncode != 0:
        raise TrainingError(reason_of(ended.stderr or ended.stdout, ended.returncode),
                            ended.stdout + ended.stderr, ended.returncode)
    return ended.stdout


@functools.lru_cache(maxsize=None)
def _death_signal_words() -> tuple[str, ...]:
    """Words before a command that interrupt it when this process dies; none where setpriv of
    util-linux lacks."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return ()
    words = (setpriv, "--pdeathsig", "INT", "--")
    try:
        tried = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True,
                               check=False)
    except OSError:
        return ()
    return words if tried.returncode == 0 else ()


class _Interrupts:
    """While it is entered, a Ctrl-C is counted instead of raised; it takes effect at the end. Only
    the main thread gets them; in another one this does nothing."""

    def __init__(self) -> None:
        self.count = 0
        self._before: Any = None

    def __enter__(self) -> "_Interrupts":
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if callable(before):  # neither ignored nor of a program around Python
                self._before = before
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, self._before)
        if self.count > 0:
            self._before(signal.SIGINT, None)

    def _note(self, number: int, frame: Optional[FrameType]) -> None:
        self.count += 1


class Process:
    """A running program, as a context: after it no process is left, however it was left. It gets
    SIGINT first, with which a run writes a checkpoint and ends; a second one, and SIGKILL, follow
    after their deadlines, or with each further Ctrl-C. All roles of a killed run end with it."""

    def __init__(self, command: list[str], environment: dict[str, str], grace_s: float) -> None:
        self._command = [*_death_signal_words(), *command]
        self._environment, self._grace_s = environment, grace_s
        self._output: IO[bytes] = tempfile.TemporaryFile()
        self._child: Optional[subprocess.Popen[bytes]] = None

    def __enter__(self) -> "Process":
        try:
            # An interrupt between the fork and the assignment would leave a process that nothing
            # refers to. A separate session: the Ctrl-C of a terminal reaches only this process.
            with _Interrupts():
                self._child = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=self._output,
                    stderr=subprocess.STDOUT, env=self._environment, start_new_session=True)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        try:
            self._stop()
        finally:
            self._output.close()

    def wait(self, seconds: float) -> Optional[int]:
        """The exit code; None: it still runs after this time."""
        assert self._child is not None, "not entered"
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def output(self) -> str:
        """All that it has printed so far."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    def interrupt(self) -> None:
        """Sends the first SIGINT, and returns."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGINT)

    def _stop(self) -> None:
        """Ends it. Blocks until it has ended."""
        if self._child is None:
            return
        with _Interrupts() as interrupts:
            for number, seconds in ((signal.SIGINT, self._grace_s), (signal.SIGINT, KILL_AFTER_S),
                                    (signal.SIGKILL, math.inf)):
                if self._child.poll() is not None:
                    return
                self._child.send_signal(number)
                end, before = time.monotonic() + seconds, interrupts.count
                while time.monotonic() < end and self.wait(0.1) is None:
                    if interrupts.count > before and number != signal.SIGKILL:
                        break


def reason_of(output: str, code: int) -> str:
    """The program's error as one line, from all that it printed."""
    lines = [line[len("troop: "):].strip() for line in output.splitlines()
             if line.startswith("troop: ")]
    if code < 0:
        return f"troop was killed by {signal.Signals(-code).name}"
    failed = [line for line in lines if line.startswith("the run failed: ")]
    if failed:
        return failed[-1]
    if lines:
        more = f" (and {len(lines) - 1} more; see output)" if len(lines) > 1 else ""
        return lines[0] + more
    rest = [line.strip() for line in output.splitlines() if line.strip()]
    return f"troop ended with exit code {code}" + (f": {rest[-1]}" if rest else "")


def last_line(path: pathlib.Path) -> Optional[dict[str, Any]]:
    """The last complete line of a file of JSON lines; None: there is none yet."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65536))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return None
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:  # cut at the front
        return None
    return found if isinstance(found, dict) else None
