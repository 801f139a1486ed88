"""What became of each Instance's pods, told the same way of a real cluster and of the embedded one.

Names, revision and order are compared, times are not: a machine's are never the same twice.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from reconciler.api.kube import Pod
from reconciler.api.ome import SERVING_GATE, Labels
from reconciler.api.time import Instant


class Milestone(NamedTuple):
    """One step in a pod's life."""

    pod: str
    image: str
    what: str
    """created, in rotation, out, deleted, gone"""


class _Life(msgspec.Struct):
    component: str
    deletion_at: Instant | None = None
    serves: bool = False


class History:
    """Milestones by Instance, and the most pods that held devices at once by component."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.instances: dict[str, list[Milestone]] = {}
        self.peaks: dict[str, int] = {}
        self.images: dict[str, str] = {}
        """Image by revision hash: what a revision is called in a comparison."""
        self._living: dict[str, _Life] = {}

    def saw(self, before: Pod | None, after: Pod | None, now: Instant) -> None:
        """Take in one write: created (no `before`), changed, or gone (no `after`)."""
        pod = after or before
        if pod is None:
            return
        uid, labels = pod.metadata.uid, pod.metadata.labels
        component = f"{labels.get(Labels.SERVICE, labels.get('app', ''))}-{labels.get(Labels.COMPONENT, '')}"
        story = self.instances.setdefault(f"{component}-{labels.get(Labels.INDEX, '')}", [])
        image = pod.spec.containers[0].image
        name = pod.metadata.name
        if Labels.REVISION in labels:
            self.images[labels[Labels.REVISION]] = image
        life = self._living.get(uid)
        if life is None:
            if after is None:
                return
            life = self._living[uid] = _Life(component)
            story.append(Milestone(name, image, "created"))
        serves = after is not None and _serves(after)
        if serves != life.serves:
            story.append(Milestone(name, image, "in rotation" if serves else "out"))
            life.serves = serves
        if after is not None and after.metadata.terminating and life.deletion_at is None:
            life.deletion_at = after.metadata.deletion_instant
            story.append(Milestone(name, image, "deleted"))
        if after is None:
            if life.deletion_at is None:
                story.append(Milestone(name, image, "deleted"))
            story.append(Milestone(name, image, "gone"))
            del self._living[uid]
        if before is None:
            held = self.holding(component, now)
            self.peaks[component] = max(held, self.peaks.get(component, 0))

    def holding(self, component: str, now: Instant) -> int:
        """Pods of a component that hold devices: those that stand, and those within their deletion grace."""
        return sum(
            life.component == component and (life.deletion_at is None or now <= life.deletion_at)
            for life in self._living.values()
        )

    def named(self, text: str) -> str:
        """A text with each revision hash replaced by its image."""
        return renamed(text, self.images)


def renamed(text: str, images: Mapping[str, str]) -> str:
    """A text with each of these hashes replaced."""
    for digest, image in images.items():
        text = text.replace(digest, f"({image})")
    return text


def _serves(pod: Pod) -> bool:
    return pod.is_true(SERVING_GATE) and pod.is_true("Ready") and not pod.metadata.terminating
