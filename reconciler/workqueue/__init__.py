"""A rate-limited queue of keys: one worker a key, no lost wake-up, delayed adds, backoff by key.

The sets and heaps are a pure core (`core`); this shell only waits.
"""

from reconciler.workqueue.core import Backoff, QueueCore
from reconciler.workqueue.shell import ShutDown, WorkQueue

__all__ = ["Backoff", "QueueCore", "ShutDown", "WorkQueue"]
