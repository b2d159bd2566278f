"""Conversion between Gymnasium spaces and Troop's: one tensor, and one kind of action.

Observations: a Box of u8 is kept, any other Box becomes f32 of its shape. Everything else becomes
one f32 vector in the order of gymnasium.spaces.utils.flatten: Discrete one-hot, MultiDiscrete
one-hot per value, MultiBinary unchanged, Dict and Tuple as the concatenation of their parts. A Dict
or Tuple with images, and any observation with an action mask, is such a vector too, and the spec
lists its parts; it is of u8 if all of them are.

Actions: Discrete; Box as floats within its bounds, or env.action_bound; MultiDiscrete and
MultiBinary as one integer, whose last component varies fastest, or with more than 4096 combinations
as one integer per component. The environment gets what action_space.sample() would return: an array
or a NumPy scalar of the space's type, within its bounds.
"""

import math
import sys

import numpy

ACTIONS_MAX = 4096  # combinations of a MultiDiscrete that become one discrete action


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


def is_image(space):
    """True for a Box of images or feature planes: [height, width, channels], or u8 without the
    last."""
    if kind(space) != "Box":
        return False
    rank = len(space.shape)
    return rank == 3 or (rank == 2 and numpy.dtype(space.dtype) == numpy.uint8)


def scale_of(space):
    """The factor for network inputs: 1/255 for a Box of bytes up to 255."""
    bytes_ = kind(space) == "Box" and numpy.dtype(space.dtype) == numpy.uint8
    return 1 / 255 if bytes_ and space.shape and numpy.max(space.high) == 255 else 1.0


class Segment:
    """A named part of a structured observation, in consecutive elements."""

    def __init__(self, name, space):
        self.name, self._part = name, Part(space, name)
        self.size, self.scale = self._part.size, scale_of(space)
        self.bytes = kind(space) == "MultiBinary" or (
            kind(space) == "Box" and numpy.dtype(space.dtype) == numpy.uint8)
        self.shape = [self.size]
        if is_image(space):
            self.shape = [*space.shape, 1][:3]

    def spec(self):
        """Returns the spec for the owner of this process."""
        return {"name": self.name, "shape": self.shape, "scale": self.scale, "action_mask": False}

    def write(self, value, out):
        """Writes value to the vector out."""
        self._part.write(value, out)


class ActionMask:
    """The mask of the next action, from info or from an entry of a Dict."""

    NAME = "action_mask"

    def __init__(self, action_space, in_observation):
        if kind(action_space) not in ("Discrete", "MultiDiscrete", "MultiBinary"):
            raise Refused(
                f"env.action_mask needs discrete actions, but its action space is {action_space!r}")
        actions = Actions(action_space).spec()
        if "count" not in actions:
            raise Refused(
                f"env.action_mask needs at most {ACTIONS_MAX} combinations of actions, but its "
                f"action space is {action_space!r}"
            )
        self.size = actions["count"]
        self._in_observation = in_observation

    def spec(self):
        """Returns the spec for the owner of this process."""
        return {"name": self.NAME, "shape": [self.size], "scale": 1.0, "action_mask": True}

    def write(self, observation, info, ended, out):
        """Writes the mask. After the end of an episode it may be missing, or allow nothing."""
        holder = observation if self._in_observation else info
        if self.NAME not in holder:
            if not ended:
                raise ValueError(f'info has no "{self.NAME}", which env.action_mask requires')
            out[...] = 1
            return
        mask = shaped(holder[self.NAME], (self.size,), self.NAME)
        if not ((mask == 0) | (mask == 1)).all():
            wrong = int(numpy.flatnonzero((mask != 0) & (mask != 1))[0])
            raise ValueError(f"element {wrong} of the action mask is {mask[wrong]}; give 0 or 1")
        if not ended and not mask.any():
            raise ValueError(f"the action mask allows none of the {self.size} actions")
        out[...] = mask


class Observations:
    """Converter of an observation space. action_space: that of an environment whose action masks
    apply; None: they are ignored."""

    def __init__(self, space, action_space=None):
        self.scale = 1.0
        self.box = kind(space) == "Box" and action_space is None
        self._part = self._mask = None
        self._segments = []
        self._keys = None  # of the segments within an observation; None: it is the only one
        if action_space is not None or self._has_images(space):
            self._structure(space, action_space)
        elif self.box:
            self._tensor(space)
        else:
            self._part = Part(space, "observation")
            self.shape = (self._part.size,)
            self.dtype = numpy.dtype(numpy.float32)
        if 0 in self.shape:
            raise Refused(f"its observation space {space!r} is empty")

    @staticmethod
    def _entries(space):
        """Pairs of key and space of a Dict or Tuple."""
        if kind(space) == "Dict":
            return list(space.spaces.items())
        return list(enumerate(space.spaces))

    def _has_images(self, space):
        if kind(space) not in ("Dict", "Tuple"):
            return False
        return any(is_image(entry) for _, entry in self._entries(space))

    def _tensor(self, space):
        self.shape = tuple(int(d) for d in space.shape)
        own = numpy.dtype(space.dtype)
        self.dtype = own if own == numpy.uint8 else numpy.dtype(numpy.float32)
        if own.kind not in "biuf":
            raise Refused(f"its observation space {space!r} is not numeric")
        self.scale = scale_of(space)
        if own not in (self.dtype, numpy.dtype(numpy.float64)):
            print(f"troop_env: observations are {own}; converted to f32", file=sys.stderr)

    def _structure(self, space, action_space):
        in_observation = kind(space) == "Dict" and ActionMask.NAME in space.spaces
        if action_space is not None:
            self._mask = ActionMask(action_space, in_observation)
        if kind(space) in ("Dict", "Tuple"):
            entries = self._entries(space)
            if self._mask is not None:
                entries = [entry for entry in entries if entry[0] != ActionMask.NAME]
            self._keys = [key for key, _ in entries]
            self._segments = [Segment(str(key), entry) for key, entry in entries]
        else:
            self._segments = [Segment("observation", space)]
        if not self._segments:
            raise Refused(f"its observation space {space!r} has nothing but the action mask")
        size = sum(segment.size for segment in self._segments)
        self.shape = (size + (self._mask.size if self._mask else 0),)
        all_bytes = all(segment.bytes for segment in self._segments)
        self.dtype = numpy.dtype(numpy.uint8 if all_bytes else numpy.float32)

    @property
    def masked(self):
        """True if observations have an action mask."""
        return self._mask is not None

    def spec(self):
        """Returns the spec for the owner of this process."""
        spec = {"dtype": "u8" if self.dtype == numpy.uint8 else "f32", "shape": list(self.shape)}
        if self._segments:
            spec["parts"] = [segment.spec() for segment in self._segments]
            if self._mask is not None:
                spec["parts"].append(self._mask.spec())
        return spec

    def write(self, observation, out, info=None, ended=False):
        """Writes any observation of the space to out; info and ended: those of its step."""
        if self._segments:
            self._write_structure(observation, out, info, ended)
            return
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

    def _write_structure(self, observation, out, info, ended):
        at = 0
        for i, segment in enumerate(self._segments):
            value = observation if self._keys is None else observation[self._keys[i]]
            segment.write(value, out[at : at + segment.size])
            at += segment.size
        if self._mask is not None:
            self._mask.write(observation, info, ended, out[at:])


class Actions:
    """Converter of an action space; `decode` returns the action for the environment.

    bound: of the components of a Box that have none (env.action_bound); 0 refuses them.
    """

    def __init__(self, space, bound=0):
        known = kind(space)
        if bound and known != "Box":
            raise Refused(
                f"its action space is {space!r}; env.action_bound is for a Box, remove it")
        if known == "Discrete":
            self._number(space)
        elif known in ("MultiDiscrete", "MultiBinary"):
            self._count(space)
        elif known == "Box":
            self._bound(space, bound)
        else:
            raise Refused(
                f"its action space is {space!r}, must be Discrete, MultiDiscrete, MultiBinary or "
                "Box"
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
        counts = numpy.asarray(getattr(space, "nvec", numpy.full(space.shape, 2)))
        total = math.prod(int(n) for n in counts.reshape(-1))
        start = numpy.broadcast_to(getattr(space, "start", 0), counts.shape)
        dtype = numpy.dtype(getattr(space, "dtype", None) or numpy.int64)
        if total > ACTIONS_MAX:
            highest = (counts.reshape(-1) - 1).tolist()
            self._spec = {
                "kind": "multi_discrete", "low": [0] * len(highest), "high": highest}
            self.decode = lambda action: (action.reshape(counts.shape) + start).astype(dtype)
            return
        table = [
            numpy.add(
                numpy.reshape(numpy.unravel_index(i, counts.reshape(-1)), counts.shape), start
            ).astype(dtype)
            for i in range(total)
        ]
        self._spec = {"kind": "discrete", "count": total}
        self.decode = lambda action: table[action].copy()

    def _bound(self, space, bound):
        low = numpy.array(space.low, numpy.float64).reshape(-1)
        high = numpy.array(space.high, numpy.float64).reshape(-1)
        finite = bool(numpy.isfinite(low).all() and numpy.isfinite(high).all())
        if not finite and not bound:
            raise Refused(
                f"its action space {space!r} has infinite bounds, which cannot be explored; give "
                "finite ones: env.action_bound, or a wrapper"
            )
        if finite and bound:
            raise Refused(
                f"its action space {space!r} has finite bounds, which apply; remove "
                "env.action_bound"
            )
        low[low == -numpy.inf], high[high == numpy.inf] = -bound, bound
        if not (low < high).all() and not finite:
            raise Refused(
                f"its action space {space!r} has no values within env.action_bound = {bound:g}; "
                "raise it"
            )
        if numpy.dtype(space.dtype).kind != "f":
            raise Refused(f"its action space {space!r} is not of floats; use MultiDiscrete")
        shape, dtype = tuple(space.shape), numpy.dtype(space.dtype)
        self._spec = {"kind": "continuous", "low": low.tolist(), "high": high.tolist()}
        least = low.astype(dtype).reshape(shape)
        most = high.astype(dtype).reshape(shape)

        def within(action):
            action = action.astype(dtype).reshape(shape)
            return numpy.minimum(numpy.maximum(action, least), most, out=action)

        # Rounding to f32 may move a value beyond a bound of f64.
        wider = dtype.itemsize > numpy.dtype(numpy.float32).itemsize
        self.decode = within if wider else lambda action: action.astype(dtype).reshape(shape)

    def spec(self):
        """Returns the spec for the owner of this process."""
        return self._spec
