"""Makes `reconciler/embedded/builtin_fields.json` out of the definitions Kubernetes publishes with its Go modules.

Run it by hand when the served version changes: `python -m tests.unit.embedded.api.extract_fields FOLDER`, where FOLDER
holds `api@VERSION` and `apimachinery@VERSION` of `k8s.io`, as a Go module cache does. `generated.proto` names every
field of a type with its number, type and merge key; only what is reachable from the served types is kept.
"""

import json
import re
import sys
from pathlib import Path
from typing import Final

ROOTS: Final = (
    "core.v1.Binding",
    "core.v1.ConfigMap",
    "core.v1.Endpoints",
    "core.v1.Event",
    "core.v1.Namespace",
    "core.v1.Node",
    "core.v1.Pod",
    "core.v1.ResourceQuota",
    "core.v1.Secret",
    "core.v1.Service",
    "core.v1.ServiceAccount",
    "apps.v1.ControllerRevision",
    "apps.v1.DaemonSet",
    "apps.v1.Deployment",
    "apps.v1.ReplicaSet",
    "apps.v1.StatefulSet",
    "authentication.v1.TokenRequest",
    "autoscaling.v1.Scale",
    "coordination.v1.Lease",
    "discovery.v1.EndpointSlice",
    "events.v1.Event",
    "meta.v1.DeleteOptions",
    "policy.v1.Eviction",
    "policy.v1.PodDisruptionBudget",
    "rbac.v1.ClusterRole",
    "rbac.v1.ClusterRoleBinding",
    "rbac.v1.Role",
    "rbac.v1.RoleBinding",
    "scheduling.v1.PriorityClass",
)
OPAQUE: Final = frozenset(
    {
        "meta.v1.Time",
        "meta.v1.MicroTime",
        "meta.v1.FieldsV1",
        "resource.Quantity",
        "util.intstr.IntOrString",
        "runtime.RawExtension",
    }
)
"""Types that are something else in JSON than in protobuf; their names end the way in the table."""

INLINE: Final = frozenset(
    {"volumeSource", "handler", "ephemeralContainerCommon", "persistentVolumeSource", "localObjectReference"}
)
"""Fields that are a message of their own in protobuf, and part of the object around them in JSON."""

_FIELD: Final = re.compile(r"(?:(optional|repeated) +([.\w]+)|map<string, *([.\w]+)>) +(\w+) = (\d+);")
_SHORT: Final = re.compile(r"^k8s\.io\.(?:api|apimachinery\.pkg\.apis|apimachinery\.pkg\.api|apimachinery\.pkg)\.")

Field = list[int | str]


def short(name: str, package: str) -> str:
    """A type's name without what all of them begin with."""
    if name in ("string", "bool", "bytes", "int32", "int64", "double", "uint32", "uint64"):
        return name
    full = name[1:] if name.startswith(".") else name
    if "." not in full:
        full = f"{package}.{full}"
    return _SHORT.sub("", full)


def read_pointers(path: Path) -> set[tuple[str, str]]:
    """Type and JSON name of all fields that are pointers in Go."""
    found: set[tuple[str, str]] = set()
    current = ""
    for line in path.read_text().splitlines() if path.exists() else ():
        if match := re.match(r"type (\w+) struct \{", line):
            current = match[1]
        elif match := re.match(r'\t\w+ +\*.*`json:"(\w+)', line):
            found.add((current, match[1]))
    return found


def read(path: Path) -> dict[str, dict[str, Field]]:
    """The types of one file: field name to number, type, cardinality and merge key.

    The cardinality is `one`, `maybe` (a pointer in Go, so that an empty value is not the same as none), `list`, `map`,
    or `inline`.
    """
    pointers = read_pointers(path.with_name("types.go"))
    messages: dict[str, dict[str, Field]] = {}
    package = message = ""
    current: dict[str, Field] = {}
    marks: dict[str, str] = {}
    for line in path.read_text().splitlines():
        stripped = line.strip()
        if stripped.startswith("package "):
            package = stripped.removeprefix("package ").rstrip(";")
        elif match := re.match(r"message (\w+) \{", stripped):
            marks = {}
            message = match[1]
            current = messages[short(message, package)] = {}
        elif mark := re.match(r"// \+(patchMergeKey|patchStrategy)=(\S+)", stripped):
            marks[mark[1]] = mark[2]
        elif field := _FIELD.fullmatch(stripped):
            kind, named, of_map, name, number = field.groups()
            type_ = short(of_map or named, package)
            cardinality = {"optional": "one", "repeated": "list"}.get(kind, "map")
            if cardinality == "one" and (message, name) in pointers:
                cardinality = "maybe"
            if name in INLINE:
                cardinality = "inline"
            entry: Field = [int(number), type_, cardinality]
            if "merge" in marks.get("patchStrategy", "").split(","):
                entry.append(marks.get("patchMergeKey", ""))
            current[name] = entry
            marks = {}
    return messages


def main(folder: Path) -> None:
    """Write the table."""
    messages: dict[str, dict[str, Field]] = {}
    for path in sorted(folder.glob("api@*/*/v1/generated.proto")):
        messages |= read(path)
    for path in sorted(folder.glob("apimachinery@*/pkg/**/generated.proto")):
        messages |= read(path)
    kept: dict[str, dict[str, Field]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in kept or name in OPAQUE or name not in messages:
            continue
        kept[name] = messages[name]
        waiting += [str(field[1]) for field in messages[name].values()]
    target = Path(__file__).parents[4] / "reconciler/embedded/builtin_fields.json"
    rows = [f"{json.dumps(name)}:{json.dumps(kept[name], separators=(',', ':'))}" for name in sorted(kept)]
    target.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
