"""Minimal spaces for environments on machines without Gymnasium.

Gymnasium's spaces of the same names work as well: adapters use names and attributes only.
"""

import numpy


class Box:
    """Values within bounds; low and high are scalars or arrays of that shape."""

    def __init__(self, low, high, shape=None, dtype=numpy.float32):
        if shape is None:
            shape = numpy.shape(low)
        self.shape = tuple(shape)
        self.dtype = numpy.dtype(dtype)
        self.low = numpy.broadcast_to(numpy.asarray(low, self.dtype), self.shape)
        self.high = numpy.broadcast_to(numpy.asarray(high, self.dtype), self.shape)

    def __repr__(self):
        return f"Box({self.shape}, {self.dtype})"


class Discrete:
    """One of n integers, beginning at start."""

    def __init__(self, n, start=0):
        self.n = int(n)
        self.start = int(start)

    def __repr__(self):
        return f"Discrete({self.n}, start={self.start})"


class MultiDiscrete:
    """Several integers; integer i is one of nvec[i], from 0."""

    def __init__(self, nvec):
        self.nvec = numpy.asarray(nvec, numpy.int64)

    def __repr__(self):
        return f"MultiDiscrete({self.nvec.tolist()})"


class MultiBinary:
    """n values of 0 or 1; n may be a shape."""

    def __init__(self, n):
        self.n = n
        self.shape = (n,) if isinstance(n, int) else tuple(n)

    def __repr__(self):
        return f"MultiBinary({self.n})"


class Dict:
    """Spaces by name, in the order given."""

    def __init__(self, spaces):
        self.spaces = dict(spaces)

    def __repr__(self):
        return f"Dict({self.spaces})"


class Tuple:
    """Spaces by position."""

    def __init__(self, spaces):
        self.spaces = tuple(spaces)

    def __repr__(self):
        return f"Tuple({self.spaces})"
