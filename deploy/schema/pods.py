"""The pod part of the schemas, taken from the OpenAPI document of a Kubernetes API server.

What an InferenceService, a runtime and a replica carry are *parts* of pods that are merged later, so nothing is
required in them except the keys by which lists are merged (`spec/components.md` §3.2). What a pod finally must have is
said by the API server that the pod is sent to, whose version may differ: so enumerations, defaults and unions are left
out too. Descriptions are left out because of size (an object in etcd may have 1.5 MiB), and with them the list types:
lists in templates belong as a whole to whoever applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from deploy.schema.words import Json, Schema

_CORE: Final = "io.k8s.api.core.v1."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_REFERENCE: Final = "#/components/schemas/"

_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

_FIXED: Final[Mapping[str, Schema]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"x-kubernetes-int-or-string": True, "pattern": _QUANTITY},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    _META + "ObjectMeta": {
        "type": "object",
        "properties": {
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "name": {"type": "string"},
            "namespace": {"type": "string"},
        },
    },
}
"""Types that don't say of themselves what the API server takes, and metadata, which is pruned unless it is listed."""

_MERGE_KEYS: Final = {"env": "name", "volumes": "name", "volumeMounts": "mountPath", "ports": "containerPort"}
"""Lists whose entries can only be merged if each has its key. A container may be nameless: the main one gets a name."""

_KEPT: Final = frozenset({"type", "format", "pattern"})


class UnknownShape(ValueError):
    """The OpenAPI document has something that this module does not know how to turn into a structural schema."""


def pod_schemas(document: Mapping[str, Json]) -> Schema:
    """The extract: `podSpec` and `container` with references resolved, of the document `/openapi/v3/api/v1`.

    Raises:
        KeyError: the document doesn't define pods.
        UnknownShape: a construct this module doesn't know.
    """
    components = cast("dict[str, dict[str, Schema]]", document["components"])
    types = components["schemas"]
    pod = _resolve({"$ref": _REFERENCE + _CORE + "PodSpec"}, types, "podSpec")
    properties = cast("dict[str, Schema]", pod["properties"])
    del properties["ephemeralContainers"]  # no pod may be created with them
    container = cast("Schema", properties["containers"]["items"])
    return {"podSpec": pod, "container": container}


def _resolve(schema: Mapping[str, Json], types: Mapping[str, Schema], path: str) -> Schema:
    reference = schema.get("$ref")
    together = cast("list[Schema]", schema.get("allOf", []))
    if reference is None and len(together) == 1:
        reference = together[0].get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_REFERENCE)
        return _FIXED[name] if name in _FIXED else _resolve(types[name], types, path)
    if "type" not in schema or together or "oneOf" in schema:
        raise UnknownShape(f"{path}: {sorted(schema)}")
    made: Schema = {key: schema[key] for key in sorted(_KEPT & schema.keys())}
    if "properties" in schema:
        fields = cast("dict[str, Schema]", schema["properties"])
        made["properties"] = {name: _field(name, fields[name], types, f"{path}.{name}") for name in sorted(fields)}
    if "items" in schema:
        made["items"] = _resolve(cast("Schema", schema["items"]), types, f"{path}[]")
    if "additionalProperties" in schema:
        made["additionalProperties"] = _resolve(cast("Schema", schema["additionalProperties"]), types, f"{path}.*")
    return made


def _field(name: str, schema: Schema, types: Mapping[str, Schema], path: str) -> Schema:
    made = _resolve(schema, types, path)
    items = made.get("items")
    key = _MERGE_KEYS.get(name)
    if key is not None and isinstance(items, dict):
        made["items"] = items | {"required": [key]}
    return made
