"""A rate-limited queue of keys: one worker a key, no lost wake-up, delayed adds, backoff by key.

The sets and the heap are a pure core (`core`); the shell only waits. What a key means is nobody's business here.
"""

from reconciler.workqueue.core import Backoff, QueueCore
from reconciler.workqueue.shell import QueueStats, ShutDown, WorkQueue

__all__ = ["Backoff", "QueueCore", "QueueStats", "ShutDown", "WorkQueue"]
