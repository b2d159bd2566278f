"""Exceptions of the package. Each message is one line with the problem, the value and the remedy.
"""


class ReplayError(Exception):
    """Base of all errors of this package. `code` is its name in the protocol, e.g. "not_found"."""

    code = "internal"


class InvalidArgument(ReplayError, ValueError):
    """An invalid value; the same call would fail again."""

    code = "invalid_argument"


class NotFound(ReplayError, LookupError):
    """The named object, such as a table, does not exist."""

    code = "not_found"


class AlreadyExists(ReplayError):
    """The resource is taken, for example an address to listen on."""

    code = "already_exists"


class FailedPrecondition(ReplayError):
    """The state does not allow the call, for example a table with fewer than `min_items` items."""

    code = "failed_precondition"


class Closed(ReplayError):
    """The replay is closed; there will be no more batches."""

    code = "out_of_range"


class ResourceExhausted(ReplayError):
    """A limit was reached: memory, disk, a window."""

    code = "resource_exhausted"


class Unavailable(ReplayError, ConnectionError):
    """The server cannot be reached; a later call may succeed."""

    code = "unavailable"


class DeadlineExceeded(ReplayError, TimeoutError):
    """The operation did not complete in time. The call may be repeated."""

    code = "deadline_exceeded"


class DataLoss(ReplayError):
    """Damaged data, or data of a version that is not supported."""

    code = "data_loss"


class Aborted(ReplayError):
    """Another client replaced this one."""

    code = "aborted"


_BY_CODE = {kind.code: kind for kind in ReplayError.__subclasses__()}


def from_code(code: str, message: str) -> ReplayError:
    """Creates the exception of a code; the extension module raises errors through this function."""
    error = _BY_CODE.get(code, ReplayError)(message)
    error.code = code
    return error
