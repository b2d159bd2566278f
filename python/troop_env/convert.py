"""Conversion between Gymnasium spaces and Troop's: one tensor, and one kind of action.

Observations: a Box of u8 is kept, any other Box becomes f32 of its shape. Everything else becomes
one f32 vector in the order of gymnasium.spaces.utils.flatten: Discrete one-hot, MultiDiscrete
one-hot per value, MultiBinary unchanged, Dict and Tuple as the concatenation of their parts.

Actions: Discrete; Box with finite bounds as floats; MultiDiscrete as one integer, whose last
component varies fastest. The environment gets what action_space.sample() would return: an array or
a NumPy scalar of the space's type, within its bounds.
"""

import math
import sys

import numpy

ACTIONS_MAX = 4096  # combinations of a MultiDiscrete


class Refused(Exception):
    """Reason why an environment cannot be used: one sentence for the user."""


def kind(space):
    """Name of the known space class that this space is or derives from."""
    names = [base.__name__ for base in type(space).__mro__]
    known = ("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Dict", "Tuple")
    return next((name for name in names if name in known), type(space).__name__)


def describe(array):
    """Tensor type in Troop's notation: f32[4]."""
    dtype = numpy.dtype(array.dtype)
    letter = {"u": "u", "i": "i", "f": "f", "b": "bool"}.get(dtype.kind, dtype.name)
    bits = "" if letter not in "uif" else str(8 * dtype.itemsize)
    return f"{letter}{bits}[{', '.join(map(str, array.shape))}]"


def one_hot(value, out, start, n):
    """Writes a one-hot vector of n elements to out."""
    index = int(value) - start
    if not 0 <= index < n:
        raise ValueError(f"observation {int(value)} is not in {start}..{start + n - 1}")
    out[...] = 0
    out[index] = 1


def shaped(value, shape, what):
    """Returns value as an array; ValueError if it has another shape or is not numeric."""
    array = numpy.asarray(value)
    if array.shape != shape or array.dtype.kind not in "biuf":
        found = describe(array)
        raise ValueError(f"{what} is {found}, the space says {list(shape)}")
    return array


class Part:
    """A space inside an observation: its number of elements, and how they are written."""

    def __init__(self, space, name):
        self._name = name
        self._kind = kind(space)
        self._space = space
        self._parts = []
        if self._kind == "Discrete":
            self.size = int(space.n)
        elif self._kind == "MultiDiscrete":
            self.size = int(numpy.sum(space.nvec))
        elif self._kind in ("Box", "MultiBinary"):
            self.size = int(math.prod(space.shape))
        elif self._kind == "Dict":
            self._parts = [(k, Part(s, f"{name}[{k!r}]")) for k, s in space.spaces.items()]
        elif self._kind == "Tuple":
            self._parts = [(i, Part(s, f"{name}[{i}]")) for i, s in enumerate(space.spaces)]
        else:
            raise Refused(
                f"its {name} space is {space!r}, must be Box, Discrete, MultiDiscrete, "
                "MultiBinary, or a Dict or Tuple of these"
            )
        if self._parts:
            self.size = sum(part.size for _, part in self._parts)

    def write(self, value, out):
        """Writes value to the vector out."""
        if self._parts:
            at = 0
            for key, part in self._parts:
                part.write(value[key], out[at : at + part.size])
                at += part.size
        elif self._kind == "Discrete":
            one_hot(value, out, int(getattr(self._space, "start", 0)), self.size)
        elif self._kind == "MultiDiscrete":
            self._write_many(value, out)
        else:
            out[...] = shaped(value, tuple(self._space.shape), self._name).reshape(-1)

    def _write_many(self, value, out):
        counts = numpy.asarray(self._space.nvec)
        starts = numpy.broadcast_to(getattr(self._space, "start", 0), counts.shape).reshape(-1)
        values = shaped(value, counts.shape, self._name).reshape(-1)
        at = 0
        for number, start, n in zip(values, starts, counts.reshape(-1)):
            one_hot(number, out[at : at + n], int(start), int(n))
            at += int(n)


class Observations:
    """Converter of an observation space."""

    def __init__(self, space):
        self.scale = 1.0
        self.box = kind(space) == "Box"
        self._part = None
        if self.box:
            self.shape = tuple(int(d) for d in space.shape)
            own = numpy.dtype(space.dtype)
            self.dtype = own if own == numpy.uint8 else numpy.dtype(numpy.float32)
            if own.kind not in "biuf":
                raise Refused(f"its observation space {space!r} is not numeric")
            if own == numpy.uint8 and self.shape and numpy.max(space.high) == 255:
                self.scale = 1 / 255
            if own not in (self.dtype, numpy.dtype(numpy.float64)):
                print(f"troop_env: observations are {own}; converted to f32", file=sys.stderr)
        else:
            self._part = Part(space, "observation")
            self.shape = (self._part.size,)
            self.dtype = numpy.dtype(numpy.float32)
        if 0 in self.shape:
            raise Refused(f"its observation space {space!r} is empty")

    def spec(self):
        """Returns the spec for the owner of this process."""
        return {"dtype": "u8" if self.dtype == numpy.uint8 else "f32", "shape": list(self.shape)}

    def write(self, observation, out):
        """Writes any observation of the space to out."""
        if self._part is not None:
            self._part.write(observation, out)
            return
        array = numpy.asarray(observation)
        wrong = array.dtype.kind not in "biuf"
        if self.dtype == numpy.uint8:
            wrong = array.dtype != numpy.uint8
        if wrong or array.shape != self.shape:
            says = numpy.broadcast_to(numpy.zeros((), self.dtype), self.shape)
            raise ValueError(f"observation is {describe(array)}, the space says {describe(says)}")
        out[...] = array


class Actions:
    """Converter of an action space; `decode` returns the action for the environment."""

    def __init__(self, space):
        known = kind(space)
        if known == "Discrete":
            self._number(space)
        elif known == "MultiDiscrete":
            self._count(space)
        elif known == "Box":
            self._bound(space)
        else:
            raise Refused(
                f"its action space is {space!r}, must be Discrete, MultiDiscrete or Box"
            )

    def _number(self, space):
        scalar = numpy.dtype(getattr(space, "dtype", None) or numpy.int64).type
        start, count = int(getattr(space, "start", 0)), int(space.n)
        self._spec = {"kind": "discrete", "count": count}
        if count > ACTIONS_MAX:
            self.decode = lambda action: scalar(action + start)
        else:
            self.decode = [scalar(action + start) for action in range(count)].__getitem__

    def _count(self, space):
        counts = numpy.asarray(space.nvec)
        total = math.prod(int(n) for n in counts.reshape(-1))
        if total > ACTIONS_MAX:
            raise Refused(
                f"its action space {space!r} has {total} combinations; at most {ACTIONS_MAX} "
                "fit into one discrete action"
            )
        start = numpy.broadcast_to(getattr(space, "start", 0), counts.shape)
        dtype = numpy.dtype(getattr(space, "dtype", None) or numpy.int64)
        table = [
            numpy.add(
                numpy.reshape(numpy.unravel_index(i, counts.reshape(-1)), counts.shape), start
            ).astype(dtype)
            for i in range(total)
        ]
        self._spec = {"kind": "discrete", "count": total}
        self.decode = lambda action: table[action].copy()

    def _bound(self, space):
        low = numpy.asarray(space.low, numpy.float64).reshape(-1)
        high = numpy.asarray(space.high, numpy.float64).reshape(-1)
        if not (numpy.isfinite(low).all() and numpy.isfinite(high).all()):
            raise Refused(
                f"its action space {space!r} has infinite bounds, which cannot be explored; give "
                "it finite bounds, for example with a wrapper"
            )
        if numpy.dtype(space.dtype).kind != "f":
            raise Refused(f"its action space {space!r} is not of floats; use MultiDiscrete")
        shape, dtype = tuple(space.shape), numpy.dtype(space.dtype)
        self._spec = {"kind": "continuous", "low": low.tolist(), "high": high.tolist()}
        least = numpy.asarray(space.low, dtype).reshape(shape)
        most = numpy.asarray(space.high, dtype).reshape(shape)

        def within(action):
            action = action.astype(dtype).reshape(shape)
            return numpy.minimum(numpy.maximum(action, least), most, out=action)

        # Rounding to f32 may move a value beyond a bound of f64.
        wider = dtype.itemsize > numpy.dtype(numpy.float32).itemsize
        self.decode = within if wider else lambda action: action.astype(dtype).reshape(shape)

    def spec(self):
        """Returns the spec for the owner of this process."""
        return self._spec
