"""Main program of a worker process: python -m troop_env.worker.

Troop starts it with a socket as descriptor 3 and a shared memory as 4; envs/subprocess/protocol.h
defines the protocol. It exits when the other end of the socket is closed.
"""

import gc
import json
import mmap
import os
import sys
import time
import traceback

SOCKET, MEMORY = 3, 4

try:
    import numpy
except ModuleNotFoundError as missing:
    if __name__ != "__main__" or missing.name != "numpy":
        raise
    WHY = (
        f"NumPy is not installed for {sys.executable}; `pip install numpy`, or set env.python "
        "to another interpreter"
    )
    os.write(SOCKET, json.dumps({"error": WHY}).encode())
    sys.exit(1)

from . import adapters, ahead, source, vector
from .collector import MetricCollector
from .convert import Refused

VERSION = 7
PART_BYTES = 1 << 15
TERMINATED, TRUNCATED, FAULT, BEGUN = 1, 2, 4, 8
DTYPES = {"u8": numpy.uint8, "f32": numpy.float32, "i32": numpy.int32}


def send(value):
    """Sends JSON in parts, the last one shorter than the others."""
    data = json.dumps(value).encode()
    if len(data) % PART_BYTES == 0:
        data += b" "
    send_parts(data)


def send_parts(data):
    """Sends bytes in messages of at most PART_BYTES."""
    for at in range(0, len(data), PART_BYTES):
        os.write(SOCKET, data[at : at + PART_BYTES])


def refuse(why):
    """Sends the owner the reason why there is no environment; returns the exit code."""
    send({"error": cut(why, 4000)})
    return 1


def cut(text, size):
    """Truncates a text to this many bytes of UTF-8; a lone surrogate becomes a "?"."""
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def reason(error, size=4000):
    """Formats an exception as one line: its type, message, and the last line outside this package.

    The message is truncated so that the text fits into `size` bytes.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not os.path.abspath(f.filename).startswith(here + os.sep)]
    place = f" ({os.path.basename(own[-1].filename)}:{own[-1].lineno})" if own else ""
    place = cut(place, size // 2)
    try:
        says = " ".join(str(error).replace("\0", " ").split())
    except Exception:  # raised by its __str__
        says = ""
    text = type(error).__name__ + (": " if says else "") + says
    return cut(text, size - len(place.encode())) + place


class Meter:
    """Sums the nanoseconds that calls take."""

    def __init__(self):
        self.spent = 0

    def wrap(self, call):
        """Returns a measured version of `call`."""

        def measured(*arguments, **named):
            begin = time.perf_counter_ns()
            try:
                return call(*arguments, **named)
            finally:
                self.spent += time.perf_counter_ns() - begin

        return measured


class Memory:
    """Views of this worker's rows in the shared memory."""

    def __init__(self, layout, spec):
        rows, total = layout["rows"], layout["total"]
        memory = mmap.mmap(MEMORY, total)
        whole = memoryview(memory)
        action = spec["action"]
        kind, width = ("i", 1) if action["kind"] == "discrete" else ("f", len(action["low"]))

        def view(name, letter, count):
            at = layout[name]
            return whole[at : at + count * numpy.dtype(letter).itemsize].cast(letter)

        self.progress = view("progress", "I", 1)
        self.spent = view("spent", "Q", 1)
        self.reset = view("reset", "B", rows)
        self.seed = view("seed", "Q", rows)
        self.reward = view("reward", "f", rows)
        self.flags = view("flags", "B", rows)
        self.action = view("action", kind, rows * width)
        if kind == "f":
            self.action = list(numpy.frombuffer(self.action, numpy.float32).reshape(rows, width))
        self._text = whole[layout["text"] : layout["text"] + rows * layout["text_bytes"]]
        self._text_bytes = layout["text_bytes"]
        dtype = numpy.dtype(DTYPES[spec["observation"]["dtype"]])
        shape = tuple(spec["observation"]["shape"])

        def views(name):  # also for scalar observations
            whole = numpy.ndarray((rows, *shape), dtype, buffer=memory, offset=layout[name])
            return [whole[i : i + 1].reshape(shape) for i in range(rows)]

        self.observation, self.final = views("observation"), views("final")

    def fault(self, row, error):
        """Writes the reason why a row failed."""
        text = reason(error, self._text_bytes - 1).encode()
        at = row * self._text_bytes
        self._text[at : at + self._text_bytes] = text.ljust(self._text_bytes, b"\0")
        self.flags[row] = FAULT


class Rows:
    """Environments that are stepped one after another."""

    def __init__(self, request):
        self._request = request
        self._adapters = [adapters.make(request) for _ in range(request["rows"])]
        self.spec = self._adapters[0].spec
        self._memory = None
        self._step = [adapter.step for adapter in self._adapters]

    def map(self, memory):
        """Sets the memory, whose layout is known after the spec."""
        self._memory = memory

    def step_all(self):
        """Steps all rows."""
        memory = self._memory
        progress, action, observation = memory.progress, memory.action, memory.observation
        reward, flags = memory.reward, memory.flags
        for row, step in enumerate(self._step):
            progress[0] = 2 * row + 1
            try:
                value, terminated, truncated = step(action[row], observation[row])
                try:
                    reward[row] = value
                except TypeError:
                    raise TypeError(f"reward is {value!r}, not a number") from None
                if terminated or truncated:
                    end = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
                    self._begin_next(row, end)
                else:
                    flags[row] = 0
            except Exception as error:
                self._drop(row, error)

    def _begin_next(self, row, end):
        """Begins the next episode in the same round, which saves a round trip. A failure does not
        change the result of the ended episode."""
        memory, observation = self._memory, self._memory.observation[row]
        memory.final[row][...] = observation
        memory.progress[0] = 2 * row + 2
        memory.flags[row] = 0
        try:
            self._adapters[row].reset(memory.seed[row], observation)
        except Exception as error:
            self._drop(row, error)
        memory.flags[row] |= end | BEGUN

    def reset_marked(self):
        """Begins the requested episodes; creates environments again that failed."""
        memory = self._memory
        for row, wanted in enumerate(memory.reset):
            if not wanted:
                continue
            memory.progress[0] = 2 * row + 2
            memory.flags[row] = 0
            try:
                if self._adapters[row] is None:
                    self._adapters[row] = adapters.make(self._request)
                    self._step[row] = self._adapters[row].step
                self._adapters[row].reset(memory.seed[row], memory.observation[row])
            except Exception as error:
                self._drop(row, error)

    def _drop(self, row, error):
        self._memory.fault(row, error)
        adapter, self._adapters[row] = self._adapters[row], None
        try:
            if adapter is not None:
                adapter.close()
        except Exception as second:
            print(f"troop_env: close failed as well: {reason(second)}", file=sys.stderr)

    def render(self, row):
        """Returns a picture of one row, or None."""
        return None if self._adapters[row] is None else self._adapters[row].render()


def send_picture(picture):
    """Sends the size of a picture, then its bytes."""
    picture = numpy.ascontiguousarray(() if picture is None else picture)
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != numpy.uint8:
        send({"error": "no picture"})
        return
    send({"height": picture.shape[0], "width": picture.shape[1]})
    send_parts(picture.tobytes())


def no_screen():
    """A hint for a failed rendering if MuJoCo needs a display."""
    if "mujoco" not in sys.modules or "MUJOCO_GL" in os.environ or "DISPLAY" in os.environ:
        return ""
    return "; set MUJOCO_GL=egl (or osmesa) to render without a display"


def serve(rows, tell, collector):
    """Serves rounds until the owner exits; `tell`, if given, is called after each."""
    read, write = os.read, os.write
    while True:
        message = read(SOCKET, PART_BYTES)
        if message == b"s":
            rows.step_all()
        elif message == b"o":
            rows.reset_marked()
        elif message[:1] == b"r":
            try:
                picture = rows.render(int(message[1:]))
            except Exception as error:
                print(f"troop_env: no picture: {reason(error)}{no_screen()}", file=sys.stderr)
                picture = None
            send_picture(picture)
            continue
        elif message == b"m":
            write(SOCKET, json.dumps(collector.take()).encode())
            continue
        else:
            return
        if tell is not None:
            tell()
        write(SOCKET, b"d")


def keep_for_good():
    """Exempts all existing objects from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()


def receive():
    """Receives the owner's next JSON message; None: the owner has exited."""
    message, part = b"", None
    while part is None or len(part) == PART_BYTES:
        part = os.read(SOCKET, PART_BYTES)
        if not part:
            return None
        message += part
    return json.loads(message)


def keywords(value):
    """Converts options to keyword arguments: TOML has no null, so "None" stands for None."""
    if isinstance(value, dict):
        return {name: keywords(one) for name, one in value.items()}
    if isinstance(value, list):
        return [keywords(one) for one in value]
    return None if value == "None" else value


def move_own_folder_last():
    """Puts this package's folder at the end of the search path. It was first, so that this package
    is the one that was loaded; a tree of sources has other packages there, which must not hide
    those that are installed."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if folder in sys.path:
        sys.path.remove(folder)
        sys.path.append(folder)


def main():
    """Returns the exit code."""
    move_own_folder_last()
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    request = receive()
    while request is not None and request["rows"] == 0:  # a spare process waits
        ahead.load(request)
        keep_for_good()
        request = receive()
    if request is None:
        return 0
    if request["version"] != VERSION:
        return refuse(f"the Python package has another version than the program: {__file__}")
    request["options"] = keywords(request["options"])
    request["meter"] = Meter() if request["measure"] else None
    request["collector"] = MetricCollector() if request["metrics"] else None
    try:
        kind = request["id"].partition(":")[0]
        rows = (vector.VectorRows if kind in vector.SOURCES else Rows)(request)
    except Refused as error:
        return refuse(str(error))
    except Exception as error:
        traceback.print_exc()
        return refuse(f"cannot create the environment: {reason(error)}")
    send({"spec": {**rows.spec, "code": source.describe(request)}})
    layout = receive()
    if layout is None:
        return 0
    memory = Memory(layout, rows.spec)
    rows.map(memory)
    os.write(SOCKET, b"d")
    meter = request["meter"]
    keep_for_good()

    def tell():
        memory.spent[0] = meter.spent

    serve(rows, tell if meter is not None else None, request["collector"])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BrokenPipeError, ConnectionResetError, KeyboardInterrupt):
        sys.exit(0)
