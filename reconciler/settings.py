"""The manager's settings: one frozen, checked value, whose built-in defaults make a plain start a safe start.

Each value comes from a flag or an `OME_*` variable (`reconciler.cli`); the word `none` turns a limit off
(`spec/omenative.md` §10.1, decision 5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from reconciler.api.time import Seconds
from reconciler.components.defaults import OperatorDefaults
from reconciler.observation import Policy

SETTLE = Seconds(0.05)


@dataclass(frozen=True)
class Settings:
    """What one manager process runs with.

    Attributes:
        kubeconfig: file to reach the cluster by; None inside a cluster.
        namespace: the one namespace to watch; None for all.
        workers: components reconciled at once.
        settle: how long events of one component are gathered before a pass; a burst of pod events then costs one pass
            and one status write.
        policy: what the rules of a component read.
        defaults: what InferenceServices and runtimes leave open.
        revision_history_limit: revisions kept beside those in use; None keeps all.
    """

    kubeconfig: Path | None = None
    namespace: str | None = None
    workers: int = 8
    settle: Seconds = SETTLE
    policy: Policy = field(default_factory=Policy)
    defaults: OperatorDefaults = field(default_factory=OperatorDefaults)
    revision_history_limit: int | None = 10
