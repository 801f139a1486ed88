"""Where a pod may go: a ledger of what every node has and holds, and the scheduler's filters over it. Pure.

The filters, their order and the words of their refusals are kube-scheduler's, so that a message such as
`0/2 nodes are available: 2 Insufficient nvidia.com/gpu.` reads as on a real cluster. Not modelled: preferences,
volumes, topology spread, preemption. Of the nodes that fit, the one wins on which the pod's resources are used least.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reconciler.embedded.models.objects import Container, Node, Pod, PodAffinityTerm, Taint
from reconciler.embedded.models.quantity import Milli, parse_quantities
from reconciler.embedded.models.selectors import (
    UNSCHEDULABLE,
    admits,
    contains,
    is_kept_off,
    selects,
    taints_of,
)

_DEFAULT_PODS: Final = Milli(110_000)
_ENOUGH: Final = 100
"""Feasible nodes after which the search stops, so that a big cluster doesn't make every pod dear."""


class HostPort(NamedTuple):
    """A port of the node that a pod takes."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True)
class Claim:
    """What a pod takes of its node, and whom it keeps away."""

    uid: str
    namespace: str
    labels: dict[str, str]
    requests: dict[str, Milli]
    ports: frozenset[HostPort]
    avoids: tuple[PodAffinityTerm, ...]


@dataclass(frozen=True)
class Fits:
    """The node a pod goes to."""

    node: str


@dataclass(frozen=True)
class Unfit:
    """No node will do, and why, in kube-scheduler's words."""

    message: str


@dataclass
class _NodeState:
    node: Node | None = None
    allocatable: dict[str, Milli] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    used: Counter[str] = field(default_factory=Counter)
    ports: Counter[HostPort] = field(default_factory=Counter)
    claims: dict[str, Claim] = field(default_factory=dict)


class Ledger:
    """All nodes with what they have and what their pods hold; costs O(1) per change."""

    def __init__(self) -> None:
        self._states: dict[str, _NodeState] = {}
        self._where: dict[str, str] = {}
        self._avoiding: dict[str, Claim] = {}
        self._start = 0

    def set_node(self, node: Node) -> None:
        """A node is new, or has changed.

        Raises:
            ValueError: its status holds a quantity that is none.
        """
        state = self._states.setdefault(node.metadata.name, _NodeState())
        allocatable = parse_quantities(node.status.allocatable or node.status.capacity)
        allocatable.setdefault("pods", _DEFAULT_PODS)
        state.node, state.allocatable, state.taints = node, allocatable, taints_of(node)

    def remove_node(self, name: str) -> None:
        """A node is gone; its pods may still be listed."""
        state = self._states.get(name)
        if state is not None:
            state.node = None
            self._forget_if_empty(name, state)

    def add(self, node: str, claim: Claim) -> None:
        """A pod holds its resources on a node; adding it again changes nothing."""
        if self._where.get(claim.uid) == node:
            return
        self.remove(claim.uid)
        state = self._states.setdefault(node, _NodeState())
        state.claims[claim.uid] = claim
        state.used.update(claim.requests)
        state.ports.update(claim.ports)
        self._where[claim.uid] = node
        if claim.avoids:
            self._avoiding[claim.uid] = claim

    def remove(self, uid: str) -> bool:
        """A pod has given its resources back; False if it held none."""
        node = self._where.pop(uid, None)
        if node is None:
            return False
        state = self._states[node]
        claim = state.claims.pop(uid)
        state.used.subtract(claim.requests)
        state.ports = state.ports - Counter(claim.ports)
        self._avoiding.pop(uid, None)
        self._forget_if_empty(node, state)
        return True

    def used(self, node: str, resource: str) -> Milli:
        """How much of a resource the node's pods hold."""
        state = self._states.get(node)
        return Milli(0 if state is None else state.used[resource])

    def place(self, pod: Pod, claim: Claim) -> Fits | Unfit:
        """The node for a pod, or why there is none."""
        nodes = [(name, state) for name, state in self._states.items() if state.node is not None]
        if not nodes:
            return Unfit("no nodes available to schedule pods")
        if len(nodes) > _ENOUGH:
            # Where only part of the cluster is looked at, it is another part each time.
            self._start = (self._start + _ENOUGH) % len(nodes)
            nodes = nodes[self._start :] + nodes[: self._start]
        neighbours = _Neighbours(pod, claim, self._states, self._avoiding.values(), self._where)
        refusals: Counter[str] = Counter()
        feasible: list[tuple[float, int, str]] = []
        for name, state in nodes:
            reasons = _refusals(pod, claim, state, neighbours)
            if reasons:
                refusals.update(reasons)
                continue
            feasible.append((_load(claim, state), len(state.claims), name))
            if len(feasible) >= _ENOUGH:
                break
        if feasible:
            return Fits(min(feasible)[2])
        told = ", ".join(sorted(f"{count} {reason}" for reason, count in refusals.items()))
        return Unfit(f"0/{len(nodes)} nodes are available: {told}.")

    def _forget_if_empty(self, name: str, state: _NodeState) -> None:
        if state.node is None and not state.claims:
            del self._states[name]


class _Neighbours:
    """Which topology domains a pod must be in or stay out of, worked out once per pod."""

    def __init__(
        self,
        pod: Pod,
        claim: Claim,
        states: dict[str, _NodeState],
        avoiding: Iterable[Claim],
        where: dict[str, str],
    ) -> None:
        affinity = pod.spec.affinity
        self._near: list[tuple[str, set[str] | None]] = []
        self._away: list[tuple[str, set[str]]] = []
        self._avoided: list[tuple[str, str]] = []
        if affinity is not None:
            for term in affinity.pod_affinity.required:
                found = _domains(term, claim.namespace, states)
                is_first = not found and _concerns(term, claim.namespace, claim)
                self._near.append((term.topology_key, None if is_first else found))
            for term in affinity.pod_anti_affinity.required:
                self._away.append((term.topology_key, _domains(term, claim.namespace, states)))
        for other in avoiding:
            state = states[where[other.uid]]
            if state.node is None:
                continue
            for term in other.avoids:
                domain = state.node.metadata.labels.get(term.topology_key)
                if domain is not None and _concerns(term, other.namespace, claim):
                    self._avoided.append((term.topology_key, domain))

    def refusal(self, node: Node) -> str | None:
        labels = node.metadata.labels
        for key, domains in self._near:
            domain = labels.get(key)
            if domain is None or (domains is not None and domain not in domains):
                return "node(s) didn't match pod affinity rules"
        if any(labels.get(key) in domains for key, domains in self._away):
            return "node(s) didn't match pod anti-affinity rules"
        if any(labels.get(key) == domain for key, domain in self._avoided):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        return None


def claim_of(pod: Pod) -> Claim:
    """What the pod takes: the sum of its containers, or its biggest init container where that is more.

    Raises:
        ValueError: a request is no quantity.
    """
    total: Counter[str] = Counter()
    for container in pod.spec.containers:
        total.update(_requests(container))
    for container in pod.spec.init_containers:
        for resource, amount in _requests(container).items():
            total[resource] = max(total[resource], amount)
    total.update(parse_quantities(pod.spec.overhead))
    total["pods"] = 1000
    affinity = pod.spec.affinity
    return Claim(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        labels=dict(pod.metadata.labels),
        requests={resource: Milli(amount) for resource, amount in total.items()},
        ports=frozenset(_host_ports(pod)),
        avoids=() if affinity is None else affinity.pod_anti_affinity.required,
    )


def _requests(container: Container) -> dict[str, Milli]:
    resources = container.resources
    return parse_quantities({**resources.limits, **resources.requests})


def _host_ports(pod: Pod) -> Iterator[HostPort]:
    for container in pod.spec.containers:
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number:
                yield HostPort(port.host_ip or "0.0.0.0", port.protocol, number)


def _refusals(pod: Pod, claim: Claim, state: _NodeState, neighbours: _Neighbours) -> list[str]:
    """Why a node won't do, empty if it will; like kube-scheduler the first filter that refuses has the word."""
    node = state.node
    if node is None:
        return ["node(s) were gone"]
    spec = pod.spec
    cordon = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
    if node.spec.unschedulable and is_kept_off(spec.tolerations, (cordon,)):
        return ["node(s) were unschedulable"]
    if state.taints and is_kept_off(spec.tolerations, state.taints):
        return ["node(s) had untolerated taint(s)"]
    if not _is_selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if claim.ports and any(_is_taken(port, state.ports) for port in claim.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = [
        "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        for resource, amount in claim.requests.items()
        if amount > 0 and state.used[resource] + amount > state.allocatable.get(resource, 0)
    ]
    if short:
        return short
    refusal = neighbours.refusal(node)
    return [] if refusal is None else [refusal]


def _is_selected(pod: Pod, node: Node) -> bool:
    spec = pod.spec
    if spec.node_selector and not contains(node.metadata.labels, spec.node_selector):
        return False
    required = None if spec.affinity is None else spec.affinity.node_affinity.required
    return required is None or admits(required, node)


def _is_taken(wanted: HostPort, taken: Counter[HostPort]) -> bool:
    return any(
        count > 0
        and (port.port, port.protocol) == (wanted.port, wanted.protocol)
        and (port.ip == wanted.ip or "0.0.0.0" in (port.ip, wanted.ip))
        for port, count in taken.items()
    )


def _load(claim: Claim, state: _NodeState) -> float:
    """How full the node would be, over the resources the pod asks for."""
    return sum(
        (state.used[resource] + amount) / state.allocatable[resource]
        for resource, amount in claim.requests.items()
        if amount > 0
    )


def _concerns(term: PodAffinityTerm, namespace: str, other: Claim) -> bool:
    """Whether a term of a pod in this namespace is about the other pod."""
    return other.namespace in (term.namespaces or (namespace,)) and selects(term.label_selector, other.labels)


def _domains(term: PodAffinityTerm, namespace: str, states: dict[str, _NodeState]) -> set[str]:
    """The topology domains in which pods run that the term is about."""
    found: set[str] = set()
    for state in states.values():
        domain = None if state.node is None else state.node.metadata.labels.get(term.topology_key)
        if domain is None or domain in found:
            continue
        if any(_concerns(term, namespace, other) for other in state.claims.values()):
            found.add(domain)
    return found
