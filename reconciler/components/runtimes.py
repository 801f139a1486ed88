"""The runtime of an InferenceService: by name, with its parents (`spec/components.md` §1, §2.1)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.ome import ClusterServingRuntime, ServingRuntime
from reconciler.components.merge import merge
from reconciler.components.refusal import RUNTIME_READY, Refusal, invalid
from reconciler.components.shapes import RuntimeReference, RuntimeSpec, read_runtime

INHERIT_ANNOTATION = "ome.io/inherit-from"
_MOST_LEVELS = 5


class Runtimes(msgspec.Struct, frozen=True):
    """All runtimes the manager sees."""

    namespaced: Mapping[tuple[str, str], ServingRuntime]
    cluster: Mapping[str, ClusterServingRuntime]


class Runtime(msgspec.Struct, frozen=True):
    """A runtime with its parents laid under it.

    Attributes:
        chain: scope and name of itself and each parent, nearest first; the scope is a namespace, or empty.
    """

    name: str
    namespace: str
    spec: RuntimeSpec
    chain: tuple[tuple[str, str], ...]


def resolve_runtime(reference: RuntimeReference, namespace: str, runtimes: Runtimes) -> Runtime:
    """The runtime an InferenceService names.

    Raises:
        Refusal: there is none, it is disabled, or its parents don't resolve.
    """
    if reference.kind not in ("", "ClusterServingRuntime", "ServingRuntime"):
        raise invalid(f'unsupported Runtime kind "{reference.kind}"')
    if reference.api_group not in ("ome.io", ""):
        raise invalid(f'unsupported Runtime API group "{reference.api_group}"')
    name = reference.name
    if reference.kind == "ServingRuntime":
        found: ServingRuntime | ClusterServingRuntime | None = runtimes.namespaced.get((namespace, name))
        missing = f"ServingRuntime {name} not found in namespace {namespace}"
    else:
        found = runtimes.cluster.get(name) or runtimes.namespaced.get((namespace, name))
        missing = f"runtime {name} not found in namespace {namespace} or at cluster scope"
    if found is None:
        raise Refusal(RUNTIME_READY, "RuntimeNotFound", missing)
    runtime = with_parents(found, runtimes)
    if runtime.spec.shape.disabled:
        scope = "namespace-scoped" if runtime.namespace else "cluster-scoped"
        raise Refusal(RUNTIME_READY, "RuntimeDisabled", f"{scope} runtime {name} is disabled")
    return runtime


def with_parents(found: ServingRuntime | ClusterServingRuntime, runtimes: Runtimes) -> Runtime:
    """A runtime over its parents, at most five levels; `disabled` is inherited.

    Raises:
        Refusal: a parent is missing, the chain is too long or a circle, or a spec has the wrong shape.
    """
    metadata = found.metadata
    chain = [(metadata.namespace, metadata.name)]
    bodies: list[JsonDict] = []
    current: ServingRuntime | ClusterServingRuntime = found
    disabled = False
    while True:
        what = f"runtime {current.metadata.name}"
        spec = read_runtime(current.spec, what)
        bodies.append(dict(spec.body))
        disabled = disabled or spec.shape.disabled
        parent_name = current.metadata.annotations.get(INHERIT_ANNOTATION, "")
        if not parent_name:
            break
        parent = _parent(current, parent_name, runtimes)
        if parent is None:
            raise Refusal(
                RUNTIME_READY, "ParentNotFound", f"{what} inherits from runtime {parent_name}, which doesn't exist"
            )
        key = (parent.metadata.namespace, parent.metadata.name)
        if key in chain:
            path = " -> ".join(name for _, name in [*chain, key])
            raise Refusal(RUNTIME_READY, "InheritanceCycle", f"runtimes inherit from each other in a circle: {path}")
        if len(chain) >= _MOST_LEVELS:
            raise Refusal(
                RUNTIME_READY,
                "MaxDepthExceeded",
                f"runtime {metadata.name} inherits over more than {_MOST_LEVELS} levels",
            )
        chain.append(key)
        current = parent
    merged: JsonDict = {}
    for body in reversed(bodies):
        merged = merge(merged, body)
    merged["disabled"] = disabled
    spec = read_runtime(msgspec.Raw(msgspec.json.encode(merged)), f"runtime {metadata.name}")
    return Runtime(metadata.name, metadata.namespace, spec, tuple(chain))


def _parent(
    child: ServingRuntime | ClusterServingRuntime, name: str, runtimes: Runtimes
) -> ServingRuntime | ClusterServingRuntime | None:
    """A cluster runtime's parents are cluster runtimes; a namespaced one's namespace comes first."""
    found = runtimes.namespaced.get((child.metadata.namespace, name)) if child.metadata.namespace else None
    return found or runtimes.cluster.get(name)
