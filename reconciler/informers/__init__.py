"""Caches that equal the server: list and watch, a store with indexes, and handlers that hear of every change.

`framing`, `decode`, `versions`, `store` and `watch_state` are pure; `informer` is the thin shell that awaits. What the
objects mean is nobody's business here.
"""

from reconciler.informers.informer import Informer
from reconciler.informers.stats import InformerStats
from reconciler.informers.store import Change, Store

__all__ = ["Change", "Informer", "InformerStats", "Store"]
