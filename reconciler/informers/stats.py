"""How an informer is doing, for readiness, metrics and people."""

from __future__ import annotations

import msgspec

from reconciler.api.time import Seconds


class InformerStats(msgspec.Struct, frozen=True):
    """The state of an informer in numbers (`spec/informers.md`, item 17).

    Attributes:
        synced: whether the first list has been applied and delivered.
        healthy: whether nothing is wrong at present.
        objects: objects in the store.
        resource_version: version up to which they are known.
        silent_for: time since the last byte from the server, None before the first.
        lists: complete lists; all but the first are relists.
        watches: watches opened; all but one a list are reconnects.
        last_error: the last failure in words, empty before the first.
        backoff: the delay under way, 0 when nothing is wrong.
        suspects: objects whose latest state can't be read.
        undecodable: how often an object couldn't be read.
        dropped_old: events left out because they were older than what is known.
        handler_errors: times a handler raised.
        indexer_errors: times an indexer raised.
    """

    synced: bool
    healthy: bool
    objects: int
    resource_version: str
    silent_for: Seconds | None
    lists: int
    watches: int
    last_error: str
    backoff: Seconds
    suspects: int
    undecodable: int
    dropped_old: int
    handler_errors: int
    indexer_errors: int

    @property
    def relists(self) -> int:
        """Lists after the first."""
        return max(0, self.lists - 1)

    @property
    def reconnects(self) -> int:
        """Watches that no list came before."""
        return max(0, self.watches - self.lists)
