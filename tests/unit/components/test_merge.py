"""The strategic merge of layers (`spec/components.md` §3.2, rows 12 and 13)."""

from __future__ import annotations

import copy

import pytest

from reconciler.api.json import objects_at
from reconciler.components.merge import merge

from .given import doc

CASES = {
    "a scalar that is set wins": ("{schedulerName: a}", "{schedulerName: b}", "{schedulerName: b}"),
    "a scalar that isn't set inherits": ("{schedulerName: a}", "{}", "{schedulerName: a}"),
    "an empty string is unset": ("{schedulerName: a}", "{schedulerName: ''}", "{schedulerName: a}"),
    "a null is unset": ("{priority: 3}", "{priority: null}", "{priority: 3}"),
    "an explicit zero counts": ("{minReplicas: 3}", "{minReplicas: 0}", "{minReplicas: 0}"),
    "a plain bool's false is unset": ("{hostNetwork: true}", "{hostNetwork: false}", "{hostNetwork: true}"),
    "an optional bool's false counts": (
        "{automountServiceAccountToken: true}",
        "{automountServiceAccountToken: false}",
        "{automountServiceAccountToken: false}",
    ),
    "maps merge by key": ("{labels: {a: x, b: y}}", "{labels: {b: z, c: w}}", "{labels: {a: x, b: z, c: w}}"),
    "an empty map is unset": ("{labels: {a: x}}", "{labels: {}}", "{labels: {a: x}}"),
    "an empty value in a map is a value": (
        "{nodeSelector: {pool: gpu}}",
        "{nodeSelector: {node-role.kubernetes.io/gpu: ''}}",
        "{nodeSelector: {pool: gpu, node-role.kubernetes.io/gpu: ''}}",
    ),
    "structs merge field by field": (
        "{lifecycle: {updateStrategy: {type: RecreatePod, rollingUpdate: {maxUnavailable: 1}}}}",
        "{lifecycle: {updateStrategy: {type: SurgeThenDrain}}}",
        "{lifecycle: {updateStrategy: {type: SurgeThenDrain, rollingUpdate: {maxUnavailable: 1}}}}",
    ),
    "a probe too": (
        "{readinessProbe: {httpGet: {path: /a, port: 80}, periodSeconds: 5}}",
        "{readinessProbe: {periodSeconds: 9}}",
        "{readinessProbe: {httpGet: {path: /a, port: 80}, periodSeconds: 9}}",
    ),
    "env merges by name, in the base's order": (
        "{env: [{name: A, value: y}, {name: B, value: z}]}",
        "{env: [{name: A, value: x}]}",
        "{env: [{name: A, value: x}, {name: B, value: z}]}",
    ),
    "env's value and valueFrom don't mix": (
        "{env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}",
        "{env: [{name: A, value: x}]}",
        "{env: [{name: A, value: x}]}",
    ),
    "additions come last": ("{env: [{name: B}]}", "{env: [{name: A}, {name: B}]}", "{env: [{name: B}, {name: A}]}"),
    "a volume's source is replaced, not mixed": (
        "{volumes: [{name: dshm, emptyDir: {medium: Memory}}]}",
        "{volumes: [{name: dshm, hostPath: {path: /shm}}]}",
        "{volumes: [{name: dshm, hostPath: {path: /shm}}]}",
    ),
    "containers merge by name and field": (
        "{containers: [{name: a, image: x, args: [p]}]}",
        "{containers: [{name: a, image: y}, {name: b, image: z}]}",
        "{containers: [{name: a, image: y, args: [p]}, {name: b, image: z}]}",
    ),
    "mounts merge by path": (
        "{volumeMounts: [{mountPath: /m, name: a}]}",
        "{volumeMounts: [{mountPath: /m, name: b}]}",
        "{volumeMounts: [{mountPath: /m, name: b}]}",
    ),
    "ports merge by number": (
        "{ports: [{containerPort: 80, name: a}]}",
        "{ports: [{containerPort: 80, name: b}, {containerPort: 81}]}",
        "{ports: [{containerPort: 80, name: b}, {containerPort: 81}]}",
    ),
    "host aliases merge by ip": (
        "{hostAliases: [{ip: 1.1.1.1, hostnames: [a]}]}",
        "{hostAliases: [{ip: 1.1.1.1, hostnames: [b]}, {ip: 2.2.2.2, hostnames: [c]}]}",
        "{hostAliases: [{ip: 1.1.1.1, hostnames: [b]}, {ip: 2.2.2.2, hostnames: [c]}]}",
    ),
    "arguments are replaced whole": ("{args: [a, b]}", "{args: [c]}", "{args: [c]}"),
    "tolerations are replaced whole": (
        "{tolerations: [{key: a}, {key: b}]}",
        "{tolerations: [{key: c}]}",
        "{tolerations: [{key: c}]}",
    ),
    "an empty list is unset": ("{args: [a], tolerations: [{key: a}]}", "{args: [], tolerations: []}",
                               "{args: [a], tolerations: [{key: a}]}"),
    "affinity's terms are replaced, the rest merges": (
        "{affinity: {nodeAffinity: {x: [{a: 1}]}, podAffinity: {y: [{b: 1}]}}}",
        "{affinity: {nodeAffinity: {x: [{c: 1}]}}}",
        "{affinity: {nodeAffinity: {x: [{c: 1}]}, podAffinity: {y: [{b: 1}]}}}",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("base", "over", "expected"), CASES.values(), ids=CASES.keys())
def test_layers(base: str, over: str, expected: str) -> None:
    lower, upper = doc(base), doc(over)
    before = copy.deepcopy((lower, upper))
    merged = merge(lower, upper)
    assert merged == doc(expected)
    assert (lower, upper) == before


def test_order_is_the_bases_then_the_additions() -> None:
    merged = merge(doc("{env: [{name: A, value: y}, {name: B, value: z}]}"), doc("{env: [{name: C}, {name: A}]}"))
    assert [item["name"] for item in objects_at(merged, "env")] == ["A", "B", "C"]
