"""100 pods, 25 % surge: this manager beside kube's Deployment controller, on one control plane of their own.

What is compared: writes per replaced pod (audit log), wall time, and the most pods that hold devices at once. Twice:
with pods that end at once, where the wall time says what the controllers cost, and with pods that take 5 s to
terminate, where the peak says who counts a terminating pod.
"""

import tempfile
from pathlib import Path

from reconciler.embedded.models import Behaviour
from tests.control_plane.commands import MASTERS, Options
from tests.control_plane.harness import ControlPlane
from tests.control_plane.measure import Rollout, roll_deployment, roll_ours
from tests.control_plane.rig import KUBELET, Rig, by_kind

PODS = 100
FAST = ("--kube-api-qps=1000", "--kube-api-burst=1000")
QUICK = Behaviour(pull_seconds=0.05, start_seconds=0.05, load_seconds=0.4, shutdown_seconds=0.1, jitter=0)
SLOW = Behaviour(pull_seconds=0.05, start_seconds=0.05, load_seconds=0.4, shutdown_seconds=5.0, jitter=0)


async def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="ome-bench-") as folder:
        directory = Path(folder)
        options = Options(controller_manager_flags=FAST, scheduler_flags=FAST, users={KUBELET: (MASTERS,)})
        async with ControlPlane.start(directory / "control-plane", options) as control_plane:
            for what, behaviour, grace in (("pods end at once", QUICK, 30), ("pods take 5 s to terminate", SLOW, 10)):
                ours = await _one(control_plane, directory, behaviour, grace, ours=True)
                theirs = await _one(control_plane, directory, behaviour, grace, ours=False)
                _print(what, ours, theirs)


async def _one(
    control_plane: ControlPlane, directory: Path, behaviour: Behaviour, grace: int, *, ours: bool
) -> Rollout:
    name = f"{'ours' if ours else 'deployment'}-{grace}"
    namespace = await control_plane.namespace(name)
    where = directory / name
    where.mkdir()
    try:
        async with Rig.start(control_plane, namespace, where, managed=ours) as rig:
            rig.kubelet.behaviours.set("*", behaviour)
            rollout = await (roll_ours if ours else roll_deployment)(rig, PODS, grace=grace)
            if ours:
                await rig.check()
            return rollout
    finally:
        await control_plane.clear_namespace(namespace)


def _print(what: str, ours: Rollout, theirs: Rollout) -> None:
    print(f"\n{PODS} pods, surge 25 %, {what}")
    print(f"{'':28}{'ome-manager':>14}{'Deployment':>14}")
    print(f"{'seconds':28}{ours.seconds:>14.1f}{theirs.seconds:>14.1f}   ratio {ours.seconds / theirs.seconds:.2f}")
    print(
        f"{'pods at once (ceiling)':28}{f'{ours.peak} ({ours.ceiling})':>14}{f'{theirs.peak} ({theirs.ceiling})':>14}"
    )
    print(f"{'writes per replaced pod':28}{ours.per_pod:>14.2f}{theirs.per_pod:>14.2f}   events apart")
    rows = {kind: [count, 0] for kind, count, _ in by_kind(list(ours.writes), ours.pods)}
    for kind, count, _ in by_kind(list(theirs.writes), theirs.pods):
        rows.setdefault(kind, [0, 0])[1] = count
    for kind, (mine, other) in rows.items():
        print(f"  {kind:34}{mine:>6}{other:>14}")
    print(f"  {'events':34}{ours.events:>6}{theirs.events:>14}", flush=True)
