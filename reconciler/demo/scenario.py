"""What the user of the demo does and waits for: only requests to the API, as with `kubectl`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import msgspec
import yaml

from reconciler.api.json import JsonDict
from reconciler.api.kube import EVENTS, NAMESPACES, PODS, Condition, Pod
from reconciler.api.ome import CLUSTER_SERVING_RUNTIMES, INFERENCE_REPLICAS, INFERENCE_SERVICES, Labels
from reconciler.api.replica import Row, decode_spec, decode_status
from reconciler.client.api import ApiClient
from reconciler.client.errors import NotFound
from reconciler.demo.view import image_of, tag
from reconciler.demo.waiting import Lookout
from reconciler.promises import Component

NAMESPACE = "llm-demo"
SERVICE = "llm"
COMPONENT = Component(NAMESPACE, SERVICE, "engine")
REPLICA = f"{SERVICE}-engine"
IMAGE = "registry.example/llm-server"

Say = Callable[[str], None]


class _ServiceStatus(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


def manifest(name: str) -> JsonDict:
    """An object the demo applies, from the file of this name beside this module."""
    document = yaml.load(files("reconciler.demo").joinpath(name).read_bytes(), yaml.CSafeLoader)
    assert isinstance(document, dict)
    return document


class Scenario:
    """The user's side of the demo."""

    def __init__(self, client: ApiClient, lookout: Lookout, *, heading: Say, say: Say) -> None:
        """Act through `client`; announce chapters by `heading` and each deed by `say`."""
        self._client = client
        self._lookout = lookout
        self._heading = heading
        self._say = say

    async def play(self) -> None:
        """The whole story: two Instances, a new image, and a newer one in the middle of a surge.

        Raises:
            NotInTime: something the user waits for didn't come; the message says what is there instead.
            ApiError: the API server refused what the user did.
        """
        self._heading("Two Instances come up")
        await self._apply()
        await self._lookout.until("the InferenceService is Ready on v1", lambda: self._settled("v1"))

        self._heading("A new image: each old pod leaves only after its replacement serves")
        await self._change_image("v2")
        await self._lookout.until("Instance 0 runs v2", self._first_moved)
        await self._lookout.until("Instance 1 surges to v2", self._surging)

        self._heading("A newer image in mid-surge: nobody needs the v2 replacement of Instance 1 any more")
        await self._change_image("v3")
        await self._lookout.until("the surge to v2 is abandoned", self._abandoned)
        await self._lookout.until("every Instance runs v3", lambda: self._settled("v3"))

    async def _apply(self) -> None:
        self._say("kubectl apply: a ClusterServingRuntime and an InferenceService with 2 Instances")
        await self._client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await self._client.create(CLUSTER_SERVING_RUNTIMES, manifest("runtime.yaml"))
        await self._client.create(INFERENCE_SERVICES, manifest("service.yaml"))

    async def _change_image(self, version: str) -> None:
        self._say(f"kubectl patch isvc {SERVICE}: the engine's image becomes {IMAGE}:{version}")
        patch: JsonDict = {"spec": {"engine": {"runner": {"image": f"{IMAGE}:{version}"}}}}
        await self._client.patch(INFERENCE_SERVICES, SERVICE, patch, NAMESPACE)

    async def _settled(self, version: str) -> str | None:
        """All Instances rest on an image, no pod is left over, and the service says it is Ready."""
        try:
            replica = await self._client.get(INFERENCE_REPLICAS, REPLICA, NAMESPACE)
        except NotFound:
            return f"InferenceReplica {REPLICA} isn't there; {await self._service()}"
        spec, status = decode_spec(replica), decode_status(replica)
        if tag(image_of(spec)) != version or status.observed_generation != replica.metadata.generation:
            return f"InferenceReplica {REPLICA} isn't at {version} yet; {await self._service()}"
        ready, wanted = status.updated_ready_replicas, spec.desired
        if status.current_revision != status.update_revision or (status.replicas, ready) != (wanted, wanted):
            rows = "; ".join(f"Instance {row.index} is {_words(row)}" for row in status.instance_statuses)
            return f"{ready}/{wanted} Instances rest on {version}: {rows or 'there is none'}"
        listed = len(await self._pods())
        if listed != wanted * spec.total_pods:
            return f"{listed} pods are listed, {wanted * spec.total_pods} should be"
        return await self._service()

    async def _service(self) -> str | None:
        """None when the InferenceService is Ready at its present generation."""
        service = await self._client.get(INFERENCE_SERVICES, SERVICE, NAMESPACE)
        status = msgspec.json.decode(service.status, type=_ServiceStatus)
        if status.observed_generation != service.metadata.generation:
            return f"InferenceService {SERVICE}: generation {service.metadata.generation} isn't observed yet"
        bad = [item for item in status.conditions if item.status == "False"]
        ready = next((item for item in status.conditions if item.type == "Ready"), None)
        if ready is not None and ready.status == "True":
            return None
        words = [f"{item.type}={item.status} ({item.reason}): {item.message}" for item in bad]
        return f"InferenceService {SERVICE} isn't Ready: {'; '.join(words) or 'no condition says why'}"

    async def _first_moved(self) -> str | None:
        rows, target = await self._rows()
        if 0 in rows and rows[0].operation is None and rows[0].running_revision == target != "":
            return None
        return f"its row is {_words(rows.get(0))}"

    async def _surging(self) -> str | None:
        """The replacement of Instance 1 runs and loads its model: the middle of a surge."""
        rows, _ = await self._rows()
        if 1 not in rows or not rows[1].surging:
            return f"its row is {_words(rows.get(1))}"
        for pod in await self._pods():
            labels, statuses = pod.metadata.labels, pod.status.container_statuses
            running = bool(statuses) and all(item.state.waiting is None for item in statuses)
            fresh = labels.get(Labels.ORDINAL) != str(rows[1].active_ordinal)
            if labels.get(Labels.INDEX) == "1" and fresh and running and not pod.is_true("Ready"):
                return None
        return "its replacement doesn't run yet"

    async def _abandoned(self) -> str | None:
        page = await self._client.list(EVENTS, NAMESPACE, field_selector="reason=SurgeAbandoned")
        rows, _ = await self._rows()
        return None if page.items else f"no such event; Instance 1's row is {_words(rows.get(1))}"

    async def _rows(self) -> tuple[dict[int, Row], str]:
        status = decode_status(await self._client.get(INFERENCE_REPLICAS, REPLICA, NAMESPACE))
        return {int(row.index): row for row in status.instance_statuses}, status.update_revision

    async def _pods(self) -> tuple[Pod, ...]:
        selector = f"{Labels.SERVICE}={SERVICE},{Labels.COMPONENT}={COMPONENT.component}"
        return (await self._client.list(PODS, NAMESPACE, label_selector=selector)).items


def _words(row: Row | None) -> str:
    if row is None:
        return "not there"
    operation = row.operation
    step = f", {operation.type.value}/{operation.step.value} to {operation.target_revision}" if operation else ""
    return f"{row.phase.value} on {row.running_revision or 'no revision'}{step}"
