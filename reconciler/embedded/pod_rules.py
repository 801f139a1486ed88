"""Pods and pod templates: the defaults a real server writes, what it checks, and what may change later.

The defaults matter although nothing runs here: whoever compares a template with what came back meets them on every real
cluster.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.api.json import JsonDict, JsonObject, JsonValue, thaw_object
from reconciler.embedded.metadata import LABEL_TEXT
from reconciler.embedded.patches import same
from reconciler.embedded.refusals import Cause, duplicate, not_allowed, required, unsupported, wrong
from reconciler.embedded.resources import Rules, World
from reconciler.embedded.values import child, look, my_objects, objects, text, whole

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_LABEL = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_IMMUTABLE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_NOT_READY_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_POLICIES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
}
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")


def complete_pod_spec(spec: JsonDict) -> None:
    """Write the defaults of a pod's spec into it."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for field in ("containers", "initContainers"):
        for container in my_objects(spec, field):
            _complete_container(container)
            if spec.get("hostNetwork") is True:
                for port in my_objects(container, "ports"):
                    port.setdefault("hostPort", port.get("containerPort"))
    for volume in my_objects(spec, "volumes"):
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if isinstance(given := volume.get(source), dict):
                given.setdefault("defaultMode", 420)
        if len(volume) == 1:
            volume["emptyDir"] = {}
        if isinstance(host := volume.get("hostPath"), dict):
            host.setdefault("type", "")


def _complete_container(container: JsonDict) -> None:
    image = text(container, "image")
    tag = image.rpartition("/")[2].partition(":")[2]
    newest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if newest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if isinstance(resources, dict) and (limits := child(resources, "limits")):
        resources["requests"] = {**limits, **child(resources, "requests")}
    for port in my_objects(container, "ports"):
        port.setdefault("protocol", "TCP")
    for variable in my_objects(container, "env"):
        reference = child(variable, "valueFrom").get("fieldRef")
        if isinstance(reference, dict):
            reference.setdefault("apiVersion", "v1")
    for name in _PROBES:
        if isinstance(probe := container.get(name), dict):
            defaults = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
            for field, value in defaults.items():
                probe.setdefault(field, value)
            if isinstance(request := probe.get("httpGet"), dict):
                request.setdefault("scheme", "HTTP")
                request.setdefault("path", "/")


def pod_spec_problems(spec: JsonObject, where: str) -> list[Cause]:
    """What is wrong with a pod's spec at `where`."""
    found: list[Cause] = []
    containers = objects(spec, "containers")
    if not containers:
        found.append(required(f"{where}.containers"))
    volumes = {text(volume, "name") for volume in objects(spec, "volumes")}
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for position, container in enumerate(objects(spec, field)):
            found += _container_problems(container, f"{where}.{field}[{position}]", names, volumes)
    for field, allowed in _POLICIES.items():
        if spec.get(field) not in allowed:
            found.append(unsupported(f"{where}.{field}", spec.get(field), allowed))
    grace = whole(spec, "terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        found.append(wrong(f"{where}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0"))
    return found


def _container_problems(container: JsonObject, where: str, names: set[str], volumes: set[str]) -> list[Cause]:
    found: list[Cause] = []
    name = text(container, "name")
    if not name:
        found.append(required(f"{where}.name"))
    elif not _LABEL.fullmatch(name) or len(name) > 63:
        found.append(wrong(f"{where}.name", name, LABEL_TEXT))
    elif name in names:
        found.append(duplicate(f"{where}.name", name))
    names.add(name)
    image = text(container, "image")
    if not image:
        found.append(required(f"{where}.image"))
    elif image != image.strip():
        found.append(wrong(f"{where}.image", image, "must not have leading or trailing whitespace"))
    policy = container.get("imagePullPolicy")
    if policy not in _PULL_POLICIES:
        found.append(unsupported(f"{where}.imagePullPolicy", policy, _PULL_POLICIES))
    for position, port in enumerate(objects(container, "ports")):
        number = whole(port, "containerPort")
        field = f"{where}.ports[{position}].containerPort"
        if not number:
            found.append(required(field))
        elif not 0 < number < 65536:
            found.append(wrong(field, number, "must be between 1 and 65535, inclusive"))
    for position, variable in enumerate(objects(container, "env")):
        if not text(variable, "name"):
            found.append(required(f"{where}.env[{position}].name"))
    for position, mount in enumerate(objects(container, "volumeMounts")):
        if (volume := text(mount, "name")) not in volumes:
            field = f"{where}.volumeMounts[{position}].name"
            found.append(Cause(field, "FieldValueNotFound", f'Not found: "{volume}"'))
        if not text(mount, "mountPath"):
            found.append(required(f"{where}.volumeMounts[{position}].mountPath"))
    return found


def quality_of_service(spec: JsonObject) -> str:
    """The QoS class a pod gets from its requests and limits of cpu and memory."""
    asked = False
    guaranteed = True
    for field in ("containers", "initContainers"):
        for container in objects(spec, field):
            requests, limits = child(container, "resources", "requests"), child(container, "resources", "limits")
            for resource in ("cpu", "memory"):
                asked = asked or resource in requests or resource in limits
                guaranteed = guaranteed and resource in limits and requests.get(resource) == limits[resource]
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


class PodRules(Rules):
    """Pods."""

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write the defaults."""
        spec = body.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        complete_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)

    def created(self, body: JsonDict, world: World) -> None:
        """A new pod is Pending, has its service account, and says at once when it is gated."""
        spec = body["spec"]
        if not isinstance(spec, dict):
            return
        account = spec.setdefault("serviceAccountName", spec.get("serviceAccount") or "default")
        spec["serviceAccount"] = account
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        _tolerate_lost_nodes(spec)
        status: JsonDict = {"phase": "Pending", "qosClass": quality_of_service(spec)}
        if objects(spec, "schedulingGates"):
            gated: JsonDict = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": None,
                "lastTransitionTime": None,
            }
            status["conditions"] = [gated]
        body["status"] = status

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Shape of the spec; and of a change, that it only changes what may change."""
        spec = child(body, "spec")
        found = pod_spec_problems(spec, "spec")
        if old is not None and not found:
            before = child(old, "spec")
            if not same(_fixed(spec, before), _fixed(before, before)) or not _only_adds_tolerations(spec, before):
                found.append(not_allowed("spec", _IMMUTABLE_TEXT))
            kept = {text(gate, "name") for gate in objects(before, "schedulingGates")}
            for gate in objects(spec, "schedulingGates"):
                if text(gate, "name") not in kept:
                    detail = "only deletion is allowed, but found new scheduling gate"
                    found.append(not_allowed("spec.schedulingGates", f"{detail} '{text(gate, 'name')}'"))
        return found


def _tolerate_lost_nodes(spec: JsonDict) -> None:
    tolerations = list(objects(spec, "tolerations"))
    for key in _NOT_READY_TOLERATIONS:
        if not any(
            item.get("key") in (key, None) and item.get("effect") in ("NoExecute", None) for item in tolerations
        ):
            added: JsonDict = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations.append(added)
    spec["tolerations"] = list(tolerations)


def _fixed(spec: JsonObject, before: JsonObject) -> JsonValue:
    """The part of a pod's spec that may never change."""
    mutable = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if objects(before, "schedulingGates"):
        # A gated pod isn't placed yet, so where it may go can still be narrowed.
        mutable |= {"nodeSelector", "affinity"}
    if (whole(before, "terminationGracePeriodSeconds") or 0) < 0:
        mutable.add("terminationGracePeriodSeconds")
    kept = {key: value for key, value in spec.items() if key not in mutable}
    for field in ("containers", "initContainers"):
        if field in kept:
            rows = [{k: v for k, v in item.items() if k != "image"} for item in objects(spec, field)]
            kept[field] = [thaw_object(row) for row in rows]
    return kept


def _only_adds_tolerations(spec: JsonObject, before: JsonObject) -> bool:
    now = objects(spec, "tolerations")
    return all(item in now for item in objects(before, "tolerations"))


def complete_template(body: JsonDict, *fields: str) -> None:
    """Write the defaults into a pod template of a workload."""
    template = look(body, *fields)
    if isinstance(template, dict):
        spec = template.setdefault("spec", {})
        template.setdefault("metadata", {})
        if isinstance(spec, dict):
            complete_pod_spec(spec)
