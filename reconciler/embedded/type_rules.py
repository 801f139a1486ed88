"""Rules of the other built-in types: Services, namespaces, workloads, and the few fields others need."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.embedded.patches import same
from reconciler.embedded.pod_rules import complete_template, pod_spec_problems
from reconciler.embedded.refusals import Cause, duplicate, not_allowed, required, unsupported, wrong
from reconciler.embedded.resources import Rules, World
from reconciler.embedded.selectors import matches_object
from reconciler.embedded.values import child, look, my_objects, objects, own, text, whole

_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")


class ServiceRules(Rules):
    """Services: addresses are the server's to give, and stay."""

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write the defaults."""
        spec = own(body, "spec")
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in my_objects(spec, "ports"):
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port")
        body.setdefault("status", {"loadBalancer": {}})

    def created(self, body: JsonDict, world: World) -> None:
        """Give it an address unless it wants none."""
        spec = own(body, "spec")
        if spec["type"] == "ExternalName":
            return
        if not spec.get("clusterIP"):
            spec["clusterIP"] = world.cluster_address()
        spec["clusterIPs"] = [spec["clusterIP"]]
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")

    def updated(self, body: JsonDict, old: JsonObject, world: World) -> None:
        """An update that leaves the address out keeps it."""
        spec, before = own(body, "spec"), child(old, "spec")
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and field in before:
                spec[field] = before[field]

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Ports, types, and the address staying what it was."""
        spec = child(body, "spec")
        found: list[Cause] = []
        kind = text(spec, "type")
        if kind not in _SERVICE_TYPES:
            found.append(unsupported("spec.type", kind, _SERVICE_TYPES))
        ports = objects(spec, "ports")
        if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
            found.append(required("spec.ports"))
        seen: set[str] = set()
        for position, port in enumerate(ports):
            where = f"spec.ports[{position}]"
            name = text(port, "name")
            if not name and len(ports) > 1:
                found.append(required(f"{where}.name"))
            elif name and name in seen:
                found.append(duplicate(f"{where}.name", name))
            seen.add(name)
            number = whole(port, "port") or 0
            if not 0 < number < 65536:
                found.append(wrong(f"{where}.port", number, "must be between 1 and 65535, inclusive"))
            if port.get("protocol") not in _PROTOCOLS:
                found.append(unsupported(f"{where}.protocol", port.get("protocol"), _PROTOCOLS))
        before = text(old or {}, "spec", "clusterIP")
        if before and kind != "ExternalName" and spec.get("clusterIP") != before:
            found.append(wrong("spec.clusterIPs[0]", spec.get("clusterIP"), "may not change once set"))
        return found


class NamespaceRules(Rules):
    """Namespaces."""

    def created(self, body: JsonDict, world: World) -> None:
        """A new namespace is Active, and carries its name as a label."""
        body["spec"] = {"finalizers": ["kubernetes"]}
        body["status"] = {"phase": "Active"}

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write the label everybody selects namespaces by."""
        name = text(body, "metadata", "name")
        if name:
            own(body, "metadata", "labels")["kubernetes.io/metadata.name"] = name


class WorkloadRules(Rules):
    """Deployments, ReplicaSets, StatefulSets, DaemonSets: a selector, and a template it selects."""

    def __init__(self, defaults: JsonObject, *, replicas: bool = True) -> None:
        """Complete the spec with these."""
        self._defaults = defaults
        self._replicas = replicas

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write the defaults."""
        spec = own(body, "spec")
        if self._replicas:
            spec.setdefault("replicas", 1)
        for field, value in self._defaults.items():
            if spec.get(field) in (None, {}):
                spec[field] = value
        strategy = child(spec, "strategy")
        if strategy.get("type") == "RollingUpdate":
            rolling: JsonDict = {"maxUnavailable": "25%", "maxSurge": "25%", **child(strategy, "rollingUpdate")}
            spec["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
        complete_template(body, "spec", "template")
        body.setdefault("status", {})

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Selector, template, replicas."""
        spec = child(body, "spec")
        found: list[Cause] = []
        selector = child(spec, "selector")
        if not selector:
            found.append(required("spec.selector"))
        elif not matches_object(selector, child(spec, "template", "metadata", "labels")):
            labels: JsonValue = dict(child(spec, "template", "metadata", "labels"))
            detail = "`selector` does not match template `labels`"
            found.append(wrong("spec.template.metadata.labels", labels, detail))
        if old is not None and not same(selector, child(old, "spec", "selector")):
            found.append(wrong("spec.selector", dict(selector), "field is immutable"))
        replicas = whole(spec, "replicas")
        if replicas is not None and replicas < 0:
            found.append(wrong("spec.replicas", replicas, "must be greater than or equal to 0"))
        return found + pod_spec_problems(child(spec, "template", "spec"), "spec.template.spec")


class RevisionRules(Rules):
    """ControllerRevisions: their data never changes."""

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Immutable data, a revision that is a number."""
        found: list[Cause] = []
        if old is not None and not same(body.get("data"), old.get("data")):
            found.append(wrong("data", None, "field is immutable"))
        revision = body.get("revision", 0)
        if not isinstance(revision, int) or revision < 0:
            found.append(wrong("revision", revision, "must be greater than or equal to 0"))
        return found


class EventRules(Rules):
    """Events: they are about something in their own namespace."""

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """The namespace of what it is about."""
        involved, namespace = text(body, "involvedObject", "namespace"), text(body, "metadata", "namespace")
        if involved and involved != namespace:
            return [wrong("involvedObject.namespace", involved, "does not match event.namespace")]
        if not involved and namespace != "default":
            return [wrong("involvedObject.namespace", involved, "does not match event.namespace")]
        return []


class LeaseRules(Rules):
    """Leases."""

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Durations that are durations."""
        found: list[Cause] = []
        for field in ("leaseDurationSeconds", "leaseTransitions"):
            value = look(body, "spec", field)
            least = 1 if field == "leaseDurationSeconds" else 0
            if value is not None and (not isinstance(value, int) or value < least):
                detail = "must be greater than 0" if least else "must be greater than or equal to 0"
                found.append(wrong(f"spec.{field}", value, detail))
        return found


class SecretRules(Rules):
    """Secrets: `stringData` is a way of writing, not a field that is kept."""

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write the type, and plain text into `data`."""
        body.setdefault("type", "Opaque")
        plain = body.pop("stringData", None)
        if isinstance(plain, dict):
            data = own(body, "data")
            for key, value in plain.items():
                data[key] = base64.b64encode(str(value).encode()).decode()


class ImmutableRules(Rules):
    """A type with fields that never change once they are set."""

    def __init__(self, *fields: str) -> None:
        """Name the fields at the top of the object."""
        self._fields = fields

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """The fields still being what they were."""
        if old is None:
            return []
        return [
            not_allowed(field, "field is immutable")
            for field in self._fields
            if not same(body.get(field), old.get(field))
        ]
