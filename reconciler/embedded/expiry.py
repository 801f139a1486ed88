"""Events live an hour. They are dropped before anybody looks at Events again, so that no timer is needed for them."""

from __future__ import annotations

from collections import deque

from reconciler.api.time import Instant, Seconds
from reconciler.embedded.builtin import EVENTS
from reconciler.embedded.core import Author, Core
from reconciler.embedded.resources import Resource
from reconciler.embedded.store import Change

EVENT_LIFE = Seconds(3600.0)

_AUTHOR = Author("system:apiserver", "delete")


class EventExpiry:
    """Remembers in order of time which Event was written when."""

    def __init__(self, core: Core) -> None:
        """React to writes of Events."""
        self._core = core
        self._written: deque[tuple[Instant, str, str, int]] = deque()
        core.reactions.append(self._react)

    def _react(self, resource: Resource, change: Change) -> None:
        if resource.storage == EVENTS.storage and change.after is not None:
            after = change.after
            self._written.append((self._core.now(), after.namespace, after.name, after.version))

    def sweep(self) -> None:
        """Drop the Events whose hour is over; a later write to an Event began its hour anew."""
        over = self._core.now() - EVENT_LIFE
        while self._written and self._written[0][0] <= over:
            _, namespace, name, version = self._written.popleft()
            stored = self._core.get(EVENTS, namespace, name)
            if stored is not None and stored.version == version:
                self._core.commit(_AUTHOR, EVENTS, stored, None)
