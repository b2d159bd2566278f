"""The least that an environment needs to say what it looks like, where Gymnasium is not installed.

Gymnasium's spaces of the same names do as well: adapters look at names and attributes alone.
"""

import numpy


class Box:
    """Numbers within bounds: low and high are numbers or arrays of that shape."""

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
    """One of n numbers, from start on."""

    def __init__(self, n, start=0):
        self.n = int(n)
        self.start = int(start)

    def __repr__(self):
        return f"Discrete({self.n}, start={self.start})"


class MultiDiscrete:
    """Several numbers, number i one of nvec[i] from 0 on."""

    def __init__(self, nvec):
        self.nvec = numpy.asarray(nvec, numpy.int64)

    def __repr__(self):
        return f"MultiDiscrete({self.nvec.tolist()})"


class MultiBinary:
    """n numbers that are 0 or 1; n may be a shape."""

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
