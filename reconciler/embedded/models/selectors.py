"""Does it match: label selectors, node selectors, taints and tolerations, by Kubernetes' rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.embedded.models.objects import (
    LabelSelector,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    Taint,
    Toleration,
)

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


def meets(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether one expression holds; an operator Kubernetes doesn't have never does."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
        case _:
            return False


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an empty one matches all, a missing one nothing."""
    if selector is None:
        return False
    return contains(labels, selector.match_labels) and all(meets(item, labels) for item in selector.match_expressions)


def contains(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether the labels have all the wanted ones."""
    return all(labels.get(key) == value for key, value in wanted.items())


def admits(selector: NodeSelector, node: Node) -> bool:
    """Whether one term of a node selector holds on the node; an empty term never does."""
    return any(_term_holds(term, node) for term in selector.node_selector_terms)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def is_kept_off(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> bool:
    """Whether one of the taints keeps off a pod with these tolerations."""
    known = tuple(tolerations)
    return any(
        taint.effect in _KEEPS_OFF and not any(tolerates(toleration, taint) for toleration in known) for taint in taints
    )


def taints_of(node: Node) -> tuple[Taint, ...]:
    """The node's taints, with those that Kubernetes' node controller gives to a node that isn't ready."""
    ready = next((item.status for item in node.status.conditions if item.type == "Ready"), "True")
    if ready == "True":
        return node.spec.taints
    key = UNREACHABLE if ready == "Unknown" else NOT_READY
    return (*node.spec.taints, Taint(key=key, effect="NoSchedule"))


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(meets(item, node.metadata.labels) for item in term.match_expressions) and all(
        meets(item, fields) for item in term.match_fields
    )


def _compares(requirement: Requirement, value: str | None) -> bool:
    try:
        left, right = int(value or ""), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return left > right if requirement.operator == "Gt" else left < right
