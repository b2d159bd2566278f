"""What goes wrong, as exceptions. Each carries one line that says what, which value, what to do."""


class ReplayError(Exception):
    """Every error of this package. `code` is its name in the protocol, e.g. "not_found"."""

    code = "internal"


class InvalidArgument(ReplayError, ValueError):
    """A value that can't be right; the same call would fail again."""

    code = "invalid_argument"


class NotFound(ReplayError, LookupError):
    """The named thing, such as a table, does not exist."""

    code = "not_found"


class AlreadyExists(ReplayError):
    """Somebody else holds it, such as an address to listen on."""

    code = "already_exists"


class FailedPrecondition(ReplayError):
    """Not now: for instance a table with fewer than `min_items` items."""

    code = "failed_precondition"


class Closed(ReplayError):
    """No more will come."""

    code = "out_of_range"


class ResourceExhausted(ReplayError):
    """A bound was reached: memory, disk, a window."""

    code = "resource_exhausted"


class Unavailable(ReplayError, ConnectionError):
    """The server is not there; later it may be."""

    code = "unavailable"


class DeadlineExceeded(ReplayError, TimeoutError):
    """It did not happen in the time given. The call may be made again."""

    code = "deadline_exceeded"


class DataLoss(ReplayError):
    """Bytes that are damaged, or not what this version understands."""

    code = "data_loss"


class Aborted(ReplayError):
    """Another client took this one's place."""

    code = "aborted"


_BY_CODE = {kind.code: kind for kind in ReplayError.__subclasses__()}


def from_code(code: str, message: str) -> ReplayError:
    """The exception of a code; the extension module raises through this."""
    error = _BY_CODE.get(code, ReplayError)(message)
    error.code = code
    return error
