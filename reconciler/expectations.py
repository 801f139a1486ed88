"""What the cache must have seen before the next pass may act (`spec/omenative.md` §3.11; design rule 5).

An own write that the cache doesn't show yet would be done twice or undone. The wait is bounded: a cache that doesn't
catch up is acted on all the same, since every destructive effect carries preconditions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from reconciler.api.kube import Pod
from reconciler.api.meta import Key
from reconciler.api.time import Instant, Seconds

PATIENCE = Seconds(10.0)


class Pending(msgspec.Struct, frozen=True):
    """Own writes of one component that the cache has not shown yet."""

    version: int
    deleted: Mapping[Key, str]
    until: Instant


class Expectations:
    """Own writes by component."""

    def __init__(self) -> None:
        """Expect nothing."""
        self._pending: dict[Key, Pending] = {}

    def note(self, component: Key, written: tuple[Pod, ...], deleted: Mapping[str, str], now: Instant) -> None:
        """Remember what one pass wrote."""
        if not written and not deleted:
            return
        before = self._pending.get(component)
        version = max(
            (int(pod.metadata.resource_version) for pod in written),
            default=0,
        )
        gone = {Key(component.namespace, name): uid for name, uid in deleted.items()}
        if before is not None:
            version = max(version, before.version)
            gone = {**before.deleted, **gone}
        self._pending[component] = Pending(version, gone, Instant(now + PATIENCE))

    def waiting(self, component: Key, seen: int, cached: Callable[[Key], Pod | None], now: Instant) -> Instant | None:
        """Until when to wait for the cache; None once it shows everything, or when patience has run out."""
        pending = self._pending.get(component)
        if pending is None:
            return None
        shown = seen >= pending.version and all(_is_gone(cached(key), uid) for key, uid in pending.deleted.items())
        if shown or now >= pending.until:
            del self._pending[component]
            return None
        return pending.until

    def forget(self, component: Key) -> None:
        """Drop what is remembered of a component that is gone."""
        self._pending.pop(component, None)


def _is_gone(pod: Pod | None, uid: str) -> bool:
    return pod is None or pod.metadata.uid != uid or pod.metadata.terminating
