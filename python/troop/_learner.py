"""troop.Learner: updates that a Python program computes, in a fleet that does everything else."""
from __future__ import annotations

import json
import math
import mmap
import os
import pathlib
import select
import shutil
import socket
import tempfile
import time
import warnings
from typing import Any, Callable, Iterator, Mapping, Optional

import numpy as np

from troop import _config, _custom_environment, _policy, _program, _run, _training

Array = np.ndarray[Any, Any]
Save = Callable[[], bytes]
Load = Callable[[dict[str, Array], Optional[bytes]], None]

DTYPES = {"f32": np.float32, "u8": np.uint8, "i32": np.int32}
MESSAGE_BYTES = 128 << 10  # as learners/external/program_channel.cc
ALIGNED = 64
WEIGHTS_EXPECTED = 1000  # batches after which a program without weights gets a warning


class Batch:
    """One batch of B items with up to S = actor.n_step steps each. The arrays are views of memory
    that the next batch overwrites; `torch.from_numpy` shares it without a copy.

    observation, next_observation: [B, ...] in the environment's dtype, with the frame stack; the
    first and, `length` steps later, the last observation. action: [B] i32, or [B, size] f32.
    reward, discount: [B, S]; the discount is 0 where the episode terminated. length: [B]. weight:
    [B], importance weights. updates: how many were made before this one.
    """

    def __init__(self, fields: Mapping[str, Array], updates: int,
                 answer: Callable[[dict[str, Any]], None],
                 places: Mapping[str, tuple[tuple[int, ...], int]]) -> None:
        self.observation, self.next_observation = fields["observation"], fields["next_observation"]
        self.action, self.reward, self.discount = (fields["action"], fields["reward"],
                                                   fields["discount"])
        self.length, self.weight, self.updates = fields["length"], fields["weight"], updates
        self._priority, self._weights = fields["priority"], fields["weights"]
        self._answer, self._places, self._answered = answer, places, False
        self._has_weights = False

    def __len__(self) -> int:
        return len(self.length)

    def returns(self, gamma: float) -> tuple[Array, Array]:
        """(R, f), both [B] f32: the n-step target is R + f · value(next_observation). R: the sum of
        the discounted rewards. f: gamma to the number of steps, or 0 where the episode
        terminated."""
        total, factor = np.zeros(len(self)), np.ones(len(self))
        for step in reversed(range(self.reward.shape[1])):
            inside = step < self.length
            decay = gamma * self.discount[:, step].astype(np.float64)
            total = np.where(inside, self.reward[:, step] + decay * total, total)
            factor = np.where(inside, decay * factor, factor)
        return total.astype(np.float32), factor.astype(np.float32)

    def done(self, loss: Any, priorities: Any, *, weights: Optional[Any] = None,
             q_mean: Any = 0.0) -> None:
        """Answers the batch: the update was made.

        priorities: [B], the absolute TD errors, before the exponent replay.alpha. weights: the
        network's new parameters, which actors and checkpoints get: a dict by name, such as
        `net.state_dict()`, whose names and shapes are Learner.parameters, or None: as before. The
        iteration warns once if the first 1,000 batches have none. loss and q_mean are metrics.
        Arrays of NumPy, PyTorch or JAX. Raises ValueError: a value that is not finite, a negative
        priority, or another shape; the batch can still be answered then.
        """
        self._once()
        numbers = array_of(priorities).reshape(-1)
        if numbers.shape != self._priority.shape:
            raise ValueError(f"priorities has {numbers.size} elements, must be {len(self)}")
        if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise ValueError("priorities has an element that is negative or not finite")
        loss, q_mean = float(array_of(loss)), float(array_of(q_mean))
        if not (math.isfinite(loss) and math.isfinite(q_mean)):
            raise ValueError(f"loss is {loss} and q_mean {q_mean}, must be finite")
        if weights is not None:
            write_weights(weights, self._places, self._weights)
        self._priority[:] = numbers
        self._answered, self._has_weights = True, weights is not None
        self._answer({"type": "done", "loss": loss, "q_mean": q_mean,
                      "weights": weights is not None})

    def refuse(self, reason: str) -> None:
        """Answers the batch: it was not used. The learner skips it, with the reason in its log."""
        self._once()
        self._answered = True
        self._answer({"type": "refused", "message": str(reason)})

    @property
    def answered(self) -> bool:
        """True after done or refuse."""
        return self._answered

    @property
    def has_weights(self) -> bool:
        """True after done with weights."""
        return self._has_weights

    def _once(self) -> None:
        if self._answered:
            raise RuntimeError("the batch was answered already")


def array_of(values: Any) -> Array:
    """Values of NumPy, PyTorch or JAX as an array of f32."""
    if hasattr(values, "detach"):  # a tensor of PyTorch, perhaps on a GPU or with a gradient
        values = values.detach().cpu().numpy()
    return np.asarray(values, np.float32)


def write_weights(weights: Any, places: Mapping[str, tuple[tuple[int, ...], int]],
                  to: Array) -> None:
    """Copies named arrays to their places in the flat buffer, after checking all of them.

    >>> flat = np.zeros(4, np.float32)
    >>> write_weights({"b": [3.0], "w": [[1.0, 2.0]]}, {"w": ((1, 2), 0), "b": ((1,), 2)}, flat)
    >>> flat
    array([1., 2., 3., 0.], dtype=float32)
    """
    if not isinstance(weights, Mapping):
        raise ValueError(f"weights is a {type(weights).__name__}, must be a dict by name")
    unknown, missing = weights.keys() - places.keys(), places.keys() - weights.keys()
    if unknown or missing:
        raise ValueError(
            f"weights has the names {', '.join(sorted(weights))}; must have "
            f"{', '.join(sorted(places))}")
    arrays = {name: array_of(value) for name, value in weights.items()}
    for name, array in arrays.items():
        if array.shape != places[name][0]:
            raise ValueError(f"weights[{name!r}] has the shape {array.shape}, must be "
                             f"{places[name][0]}")
        if not np.isfinite(array).all():
            raise ValueError(f"weights[{name!r}] has an element that is not finite")
    for name, array in arrays.items():
        begin = places[name][1]
        to[begin:begin + array.size] = array.reshape(-1)


class Channel:
    """The program's side of the socket on which the learner process connects, again after each of
    its restarts."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="troop-")  # for this user only
        self.path = os.path.join(self._folder, "learner")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen(4)
        self._learner: Optional[socket.socket] = None

    def close(self) -> None:
        """Closes both sockets, and removes the folder."""
        self._hang_up()
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def receive(self, seconds: float) -> Optional[tuple[dict[str, Any], int]]:
        """The next message, and its attached file or -1; None: there is none yet."""
        ready, _, _ = select.select([self._listener, *filter(None, [self._learner])], [], [],
                                    seconds)
        if self._listener in ready:  # a replacement; the process before it has ended
            self._hang_up()
            self._learner, _ = self._listener.accept()
            return None
        if not ready or self._learner is None:
            return None
        try:
            data, files, _, _ = socket.recv_fds(self._learner, MESSAGE_BYTES, 1)
        except OSError:
            data, files = b"", []
        if not data:
            self._hang_up()
            return None
        return json.loads(data), files[0] if files else -1

    def send(self, message: Mapping[str, Any], content: Optional[bytes] = None) -> None:
        """Answers. content: attached as a file. A learner that has ended gets nothing."""
        if self._learner is None:
            return
        file = -1
        try:
            if content:
                file = os.memfd_create("troop-state")
                with open(file, "wb", closefd=False) as target:
                    target.write(content)
            socket.send_fds(self._learner, [json.dumps(message).encode()],
                            [file] if file >= 0 else [])
        except OSError:
            self._hang_up()
        finally:
            if file >= 0:
                os.close(file)

    def _hang_up(self) -> None:
        if self._learner is not None:
            self._learner.close()
            self._learner = None


class Learner:
    """A fleet whose updates this program computes, with any framework: actors, replay, evaluator
    and checkpoints are Troop's own, and the learner process hands each batch to this program.

        with troop.Learner("config.toml", save=save, load=load) as learner:
            for batch in learner:
                ...
                batch.done(loss, priorities, weights=net.state_dict())

    The loop ends with the run; `break`, an exception and Ctrl-C interrupt the run, which writes a
    checkpoint. A learner process that dies is replaced, and the loop continues.

    save() returns the program's own state as bytes, such as the optimizer's, for a checkpoint.
    load(weights, state) takes both back, before the first batch, and when the run was rolled back
    or its learner replaced: weights are arrays by name, state is None if there is none. Without
    `load` the program keeps its own weights where that loses nothing, and a resumed or rolled back
    run is an error.

    config, overrides, env, env_kwargs, overwrite, progress, program, settings: as those of
    troop.train. The settings of the algorithm (learner.gamma, optimizer.*, ...) have no effect but
    what the program makes of `learner.config`. Raises as train.
    """

    def __init__(self, config: _config.ConfigLike, overrides: Optional[Mapping[str, Any]] = None,
                 /, *, save: Optional[Save] = None, load: Optional[Load] = None, env: Any = None,
                 env_kwargs: Optional[Mapping[str, Any]] = None, overwrite: bool = False,
                 progress: bool = True, program: Optional[str] = None, **settings: Any) -> None:
        given = _config.joined(overrides, settings)
        options = _training.Options(env, env_kwargs, overwrite, progress, program)
        self._begin(save, load, program)
        self._task = _training.prepared(config, _external(given, self._channel.path), options)

    @classmethod
    def resume(cls, path: _policy.PathLike, overrides: Optional[Mapping[str, Any]] = None, /, *,
               save: Optional[Save] = None, load: Load, progress: bool = True,
               program: Optional[str] = None, **settings: Any) -> "Learner":
        """Continues a run of a Learner from its newest checkpoint."""
        run = _run.Run(path, program=program)
        given = _config.joined(overrides, settings)
        learner = cls.__new__(cls)
        learner._begin(save, load, program)  # pylint: disable=protected-access
        external = _external(given, learner._channel.path)
        learner._task = _training.resumed(run, external, progress, program)
        return learner

    def _begin(self, save: Optional[Save], load: Optional[Load], program: Optional[str]) -> None:
        _custom_environment.refuse_in_worker()
        self._save, self._load, self._program = save, load, program
        self._channel = Channel()
        self._execution: Optional[_training.Execution] = None
        self._fields: dict[str, Array] = {}
        self._places: dict[str, tuple[tuple[int, ...], int]] = {}
        self._batch: Optional[Batch] = None  # the last one
        self._batches, self._loads = 0, 0  # batches: of all learners; loads: of this one
        self._without_weights = 0  # batches, until the first with weights or the warning
        self._grace_s = 0.0
        self.config: dict[str, Any] = {}
        self.actions = 0
        self.path = pathlib.Path()

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each parameter of the network, after the first batch or load."""
        return {name: shape for name, (shape, _) in self._places.items()}

    @property
    def run(self) -> _run.Run:
        """The run, once it has begun."""
        return _run.Run(self.path, program=self._program)

    def __enter__(self) -> "Learner":
        try:
            task = self._task.__enter__()
            self.path, self._grace_s = task.path, task.grace_s
            self._execution = _training.Execution(task).__enter__()
        except BaseException:
            self._channel.close()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        execution = self._execution
        assert execution is not None
        try:
            self._drain(execution)
        finally:
            self._channel.close()  # a learner that waits for an answer ends
            execution.__exit__(*error)
            self._task.__exit__(*error)
            self._execution = None

    def __iter__(self) -> Iterator[Batch]:
        execution = self._execution
        if execution is None:
            raise RuntimeError("use the learner in a with statement: `with troop.Learner(...) as "
                               "learner`")
        code, next_poll = None, 0.0
        while code is None:
            if (now := time.monotonic()) >= next_poll:  # it costs as much as a small update
                code, next_poll = execution.poll(0), now + _training.POLL_S
            received = self._channel.receive(_training.POLL_S)
            if received is None:
                continue
            updates = self._handle(*received)
            if updates is None:
                continue
            batch = Batch(self._fields, updates, self._channel.send, self._places)
            self._batches, self._batch = self._batches + 1, batch
            yield batch
            if not batch.answered:
                raise RuntimeError("the batch was not answered; call batch.done or batch.refuse")
            self._check_weights(batch)
        execution.require_success(code)

    def _check_weights(self, batch: Batch) -> None:
        """Warns once about a program that never gives weights: actors keep the first ones."""
        if batch.has_weights:
            self._without_weights = WEIGHTS_EXPECTED  # no warning any more
        elif self._without_weights < WEIGHTS_EXPECTED:
            self._without_weights += 1
            if self._without_weights == WEIGHTS_EXPECTED:
                warnings.warn(
                    f"{WEIGHTS_EXPECTED} batches without weights: actors and checkpoints still "
                    "have the first ones; call batch.done(..., weights=...)", stacklevel=3)

    def _handle(self, message: dict[str, Any], file: int) -> Optional[int]:
        """Answers a message. Returns the updates before a batch, which the caller answers."""
        kind = message["type"]
        try:
            if kind == "hello":
                self._map(message, file)
                self._channel.send({"type": "hello", "protocol": 1})
            elif kind == "load":
                self._take_state(int(message["updates"]), file)
            elif kind == "save":
                self._give_state()
            elif kind == "batch":
                return int(message["updates"])
        finally:
            if file >= 0:
                os.close(file)
        return None

    def _map(self, hello: Mapping[str, Any], file: int) -> None:
        """The tensors of a new learner process."""
        memory = mmap.mmap(file, hello["bytes"])
        self._loads = 0
        self._fields = {}
        for field in hello["fields"]:
            count = math.prod(field["shape"])
            flat = np.frombuffer(memory, DTYPES[field["dtype"]], count, field["offset"])
            self._fields[field["name"]] = flat.reshape(field["shape"])
        self._places = {p["name"]: (tuple(p["shape"]), p["offset"]) for p in hello["parameters"]}
        self.config, self.actions = _config.parse(hello["config"]), hello["actions"]

    def _take_state(self, updates: int, file: int) -> None:
        """Gives the program the weights and the state of an update."""
        self._loads += 1
        known = updates == 0 or (self._batches > 0 and self._loads == 1)
        try:
            if self._load is not None:
                state = None
                if file >= 0:
                    with open(file, "rb", closefd=False) as source:
                        source.seek(0)  # the position is shared with the writer
                        state = source.read()
                flat = self._fields["weights"]
                self._load({name: flat[at:at + math.prod(shape)].reshape(shape).copy()
                            for name, (shape, at) in self._places.items()}, state)
            elif not known:
                raise RuntimeError(f"the run continues from update {updates}, but the program "
                                   "cannot load its weights: give troop.Learner the argument load")
        except BaseException:
            self._channel.send({"type": "failed"})
            raise
        self._channel.send({"type": "loaded"})

    def _give_state(self) -> None:
        """The program's state, for a checkpoint."""
        try:
            state = self._save() if self._save is not None else None
        except BaseException:
            self._channel.send({"type": "failed"})
            raise
        self._channel.send({"type": "saved"}, state)

    def _drain(self, execution: _training.Execution) -> None:
        """Interrupts the run, and answers its requests until it has written its checkpoint."""
        execution.process.interrupt()
        if self._batch is not None and not self._batch.answered:
            self._batch.refuse("the program ends")
        deadline = time.monotonic() + self._grace_s
        while execution.poll(0) is None and time.monotonic() < deadline:
            received = self._channel.receive(_training.POLL_S)
            if received is not None and self._handle(*received) is not None:
                self._channel.send({"type": "refused", "message": "the program ends"})


def _external(given: dict[str, Any], path: str) -> dict[str, Any]:
    """The overrides of a run whose updates a program computes."""
    for key in ("learner.algorithm", "learner.program_socket"):
        if key in given:
            raise ValueError(f"{key} is set by troop.Learner; leave it out")
    return {**given, "learner.algorithm": "external", "learner.program_socket": path}
