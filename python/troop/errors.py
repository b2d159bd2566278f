"""Exceptions of the extension: those of Gymnasium and Python that its users already catch."""
from gymnasium import error


def from_code(code: str, message: str) -> Exception:
    """Returns the exception for a status. Called by the extension."""
    if code in ("invalid_argument", "not_found", "out_of_range"):
        return ValueError(message)
    if code == "failed_precondition":  # the order of calls
        return error.ResetNeeded(message)
    return RuntimeError(message)
