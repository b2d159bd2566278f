"""Troop's replay for Python: prioritized experience replay for PyTorch, JAX and NumPy, in process
(LocalReplay) or as a service that many processes share (Server, Client)."""
from ._other_python import explained

try:
    from . import _native
except ImportError as error:
    raise explained(error, __path__[0]) from error

from . import errors
from .ends import Batch, Sampler, Writer
from .errors import ReplayError
from .local import LocalReplay
from .service import Client, Server, TableInfo
from .table import Spec, Table

__version__ = _native.version
__all__ = ["Batch", "Client", "LocalReplay", "ReplayError", "Sampler", "Server", "Spec", "Table",
           "TableInfo", "Writer", "errors"]
