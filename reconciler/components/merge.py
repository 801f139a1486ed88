"""The strategic merge of component layers (`spec/components.md` §3.2), on plain JSON, without changing its input.

Later layers win. Scalars are set or inherited, maps merge by key, the named lists merge by their key, all other lists
are replaced whole. An empty string, list or map, a null, and a plain bool's `false` are "unset"; explicit numbers
count.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.api.json import JsonDict, JsonObject, JsonValue, is_array, is_object, thaw, thaw_object

_LIST_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}

_MAPS = frozenset(
    {
        "labels",
        "annotations",
        "nodeSelector",
        "matchLabels",
        "limits",
        "requests",
        "overhead",
        "config",
        "servicePortAppProtocols",
    }
)
"""Maps of users' own keys: an empty value there is a value (`node-role.kubernetes.io/gpu: ""`), not an unset field."""

_REPLACED_ITEMS = frozenset({"volumes"})
"""Lists whose items replace their namesake whole: a volume's source can't be mixed."""

_OPTIONAL_BOOLS = frozenset(
    {
        "automountServiceAccountToken",
        "enableServiceLinks",
        "shareProcessNamespace",
        "hostUsers",
        "setHostnameAsFQDN",
        "privileged",
        "allowPrivilegeEscalation",
        "readOnlyRootFilesystem",
        "runAsNonRoot",
        "markNotReadyDuringLifecycle",
        "optional",
    }
)
"""Booleans that Kubernetes keeps as pointers: an explicit `false` is a statement."""


def merge(base: JsonObject, over: JsonObject) -> JsonDict:
    """`over` laid over `base`."""
    merged = thaw_object(base)
    for key, value in over.items():
        if _unset(key, value):
            continue
        before = merged.get(key)
        if key == "env" and is_array(value) and is_array(before):
            merged[key] = _merge_env(before, value)
        elif is_object(value) and is_object(before):
            merged[key] = _merge_map(before, value) if key in _MAPS else merge(before, value)
        elif is_array(value) and is_array(before) and key in _LIST_KEYS:
            merged[key] = _merge_list(before, value, _LIST_KEYS[key], whole=key in _REPLACED_ITEMS)
        else:
            merged[key] = thaw(value)
    return merged


def merge_all(*layers: JsonObject) -> JsonDict:
    """All layers, the last one winning."""
    merged: JsonDict = {}
    for layer in layers:
        merged = merge(merged, layer)
    return merged


def _unset(key: str, value: JsonValue) -> bool:
    if value is None:
        return True
    if isinstance(value, bool):
        return value is False and key not in _OPTIONAL_BOOLS
    if isinstance(value, str):
        return value == ""
    return (is_array(value) or is_object(value)) and not value and key != "emptyDir"


def _merge_map(base: JsonObject, over: JsonObject) -> JsonDict:
    return {**thaw_object(base), **{key: thaw(value) for key, value in over.items() if value is not None}}


def _merge_env(base: Sequence[JsonValue], over: Sequence[JsonValue]) -> list[JsonValue]:
    """Variables of the same name are replaced whole: `value` and `valueFrom` exclude each other."""
    return _merge_list(base, over, "name", whole=True)


def _merge_list(base: Sequence[JsonValue], over: Sequence[JsonValue], key: str, *, whole: bool) -> list[JsonValue]:
    """Base order, then additions in theirs."""
    merged = [thaw(item) for item in base]
    places = {item.get(key): place for place, item in enumerate(base) if is_object(item)}
    for item in over:
        place = places.get(item.get(key)) if is_object(item) else None
        if place is None:
            merged.append(thaw(item))
            continue
        before = merged[place]
        merged[place] = thaw(item) if whole or not is_object(before) or not is_object(item) else merge(before, item)
    return merged
