"""What the server says of itself: version, health, and the types it serves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.api.json import JsonDict, JsonValue
from reconciler.embedded.answers import Answer
from reconciler.embedded.refusals import no_such_resource
from reconciler.embedded.resources import Registry, Resource

VERSION: JsonDict = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "embedded",
}
_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
_DISCOVERY = re.compile(r"/api|/apis|/api/v1|/apis/[^/]+(/[^/]+)?")
_TEXT = {"content-type": "text/plain; charset=utf-8"}

_PARTS: dict[tuple[str, str], tuple[tuple[str, str, str, str], ...]] = {
    ("", "pods"): (
        ("binding", "", "v1", "Binding"),
        ("eviction", "policy", "v1", "Eviction"),
    ),
    ("", "serviceaccounts"): (("token", "authentication.k8s.io", "v1", "TokenRequest"),),
}


def plain_answer(path: str) -> Answer | None:
    """The answer about the server itself, None when the path is about something else."""
    if path in _HEALTH or path.startswith(tuple(f"{item}/" for item in _HEALTH)):
        return Answer(200, b"ok", _TEXT)
    if path == "/version":
        return Answer.of(200, VERSION)
    if path == "/":
        return Answer.of(200, {"paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]})
    return None


def is_discovery(path: str) -> bool:
    """Whether a path asks which types there are."""
    return _DISCOVERY.fullmatch(path.rstrip("/")) is not None


def answer(path: str, registry: Registry) -> Answer:
    """Which types there are.

    Raises:
        Refusal: 404, no such group or version.
    """
    parts = path.strip("/").split("/")
    versions = registry.versions()
    if parts == ["api"]:
        return Answer.of(200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    if parts == ["apis"]:
        groups: list[JsonValue] = [_group(name, known) for name, known in versions.items() if name]
        return Answer.of(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    if parts[0] == "api":
        return Answer.of(200, _resources(registry, "", "v1"))
    group = parts[1]
    if group not in versions or (len(parts) > 2 and parts[2] not in versions[group]):
        raise no_such_resource()
    if len(parts) == 2:
        return Answer.of(200, {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions[group])})
    return Answer.of(200, _resources(registry, group, parts[2]))


def _group(name: str, versions: list[str]) -> JsonDict:
    rows: list[JsonValue] = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": rows, "preferredVersion": rows[0]}


def _resources(registry: Registry, group: str, version: str) -> JsonDict:
    rows: list[JsonValue] = []
    for resource in sorted(registry, key=lambda item: item.plural):
        if (resource.group, resource.version) == (group, version):
            rows += _rows(resource)
    api_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": rows}


def _rows(resource: Resource) -> list[JsonDict]:
    row: JsonDict = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    rows = [row]
    if resource.status:
        rows.append(_part(resource, "status", resource.kind, ["get", "patch", "update"]))
    if resource.scale is not None:
        verbs = ["get", "patch", "update"]
        scale = _part(resource, "scale", "Scale", verbs)
        rows.append({**scale, "group": "autoscaling", "version": "v1"})
    for name, group, version, kind in _PARTS.get((resource.group, resource.plural), ()):
        part = _part(resource, name, kind, ["create"])
        rows.append({**part, "group": group, "version": version} if group else part)
    return rows


def _part(resource: Resource, name: str, kind: str, verbs: Sequence[str]) -> JsonDict:
    return {
        "name": f"{resource.plural}/{name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }
