"""An InferenceService's status from its replicas (`spec/components.md` §7). Pure; equal status means no write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from reconciler.api.budget import BudgetError
from reconciler.api.json import JsonDict, JsonObject, JsonValue, decode_object, is_array, is_object
from reconciler.api.kube import Condition
from reconciler.api.ome import API_VERSION, INFERENCE_REPLICAS, InferenceReplica
from reconciler.api.replica import ReplicaSpec, ReplicaStatus, decode_spec, decode_status
from reconciler.api.time import Instant, format_instant
from reconciler.components.project import PARENT_GENERATION
from reconciler.components.refusal import RUNTIME_READY, SPEC_ACCEPTED, Refusal, invalid

_COUNTS = (
    "replicas",
    "readyReplicas",
    "servingReplicas",
    "availableReplicas",
    "updatedReplicas",
    "updatedReadyReplicas",
)
_MIRRORED = ("currentRevision", "updateRevision", "collisionCount", "labelSelector", "rolloutHold", "conditions")
_ACCEPTED = {RUNTIME_READY: "RuntimeResolved", SPEC_ACCEPTED: "Accepted"}


def component_condition(component: str) -> str:
    """`EngineReady`, `DecoderReady`, `RouterReady`."""
    return f"{component.capitalize()}Ready"


class Seen(msgspec.Struct, frozen=True):
    """A component's replica as the status mirrors it; either part is None where it can't be read or isn't there."""

    replica: InferenceReplica
    spec: ReplicaSpec | None
    status: ReplicaStatus | None


def see(replica: InferenceReplica) -> Seen:
    """Read a replica leniently: a wrong shape is the replica's own condition to report."""
    try:
        spec, status = decode_spec(replica), decode_status(replica)
        spec.unavailable_limit  # noqa: B018 - a malformed budget shows only when it is resolved
    except (msgspec.ValidationError, BudgetError):
        return Seen(replica, None, None)
    return Seen(replica, spec, status)


def build_status(
    previous: JsonObject,
    generation: int,
    declared: Iterable[str],
    replicas: Mapping[str, Seen],
    refusals: Iterable[Refusal],
    url: str,
    now: Instant,
) -> JsonDict:
    """The whole status of a pass.

    Args:
        previous: the stored status.
        generation: the spec's, refusals too.
        declared: components to report on: those the InferenceService declares, and where its spec is refused whole
            those that run.
        replicas: what exists of them.
        refusals: why some or all weren't projected.
        url: where clients reach it; empty keeps the old one.
        now: this instant.
    """
    names = list(declared)
    refused = list(refusals)
    conditions = [_component(name, replicas.get(name), refused, now) for name in names]
    conditions.insert(0, _overall(conditions, refused, now))
    conditions.append(_condition("IngressReady", "True", "IngressDisabled", "", now))
    before = _conditions(previous)
    conditions += [
        condition
        for type_ in (RUNTIME_READY, SPEC_ACCEPTED)
        if (condition := _advisory(type_, refused, before, now)) is not None
    ]
    status: JsonDict = {
        "observedGeneration": generation,
        "conditions": [msgspec.to_builtins(_kept(condition, before.get(condition.type))) for condition in conditions],
    }
    known = _known(previous, "components")
    components: JsonDict = {}
    for name in names:
        seen = replicas.get(name)
        if seen is not None:
            components[name] = _mirror(seen, _known(known, name))
    if components:
        status["components"] = components
    address = url or str(previous.get("url") or "")
    if address:
        status["url"] = address
        status["address"] = {"url": address}
    return status


def flip(previous: JsonObject, status: JsonObject) -> bool | None:
    """Whether `Ready` turned True or away from it by this status; None when it did neither."""
    before, after = _conditions(previous).get("Ready"), _conditions(status).get("Ready")
    was = before is not None and before.status == "True"
    now_is = after is not None and after.status == "True"
    return None if was == now_is else now_is


def new_refusals(previous: JsonObject, status: JsonObject) -> list[Condition]:
    """Advisories that are False and say something else than the stored ones: an event is due for each (§0.4)."""
    before, after = _conditions(previous), _conditions(status)
    found: list[Condition] = []
    for type_ in (RUNTIME_READY, SPEC_ACCEPTED):
        now, then = after.get(type_), before.get(type_)
        if now is None or now.status != "False":
            continue
        if then is None or (then.status, then.reason, then.message) != (now.status, now.reason, now.message):
            found.append(now)
    return found


def _component(name: str, seen: Seen | None, refused: list[Refusal], now: Instant) -> Condition:
    type_ = component_condition(name)
    if seen is None:
        refusal = next((item for item in refused if item.component in (None, name)), None)
        if refusal is not None:
            return _condition(type_, "False", refusal.reason, str(refusal), now)
        return _condition(type_, "Unknown", "Pending", "the component is being created", now)
    status, spec = seen.status, seen.spec
    if status is None or spec is None or not status.observed_generation:
        return _condition(type_, "Unknown", "Pending", "the component has not reported yet", now)
    supported = status.condition("Supported")
    if supported is not None and supported.status == "False" and spec.is_gang:
        return _condition(type_, "False", supported.reason, supported.message, now)
    total = spec.desired
    limit = spec.unavailable_limit
    floor = total if limit is None else max(1, total - limit)
    serving = status.serving_replicas
    if total == 0:
        return _condition(type_, "False", "NoReplicas", "Component has no desired Instances", now)
    if status.ready_replicas >= total:
        return _condition(type_, "True", "Ready", "All Instances are Ready", now)
    if serving >= floor:
        return _condition(type_, "True", "MinimumAvailable", f"{serving}/{total} Instances serving (min {floor})", now)
    return _condition(
        type_, "False", "InsufficientAvailable", f"{serving}/{total} Instances serving, need {floor}", now
    )


def _overall(conditions: list[Condition], refused: list[Refusal], now: Instant) -> Condition:
    """Any False, else any Unknown, else True; with the reason of the first that decides."""
    for wanted in ("False", "Unknown"):
        found = next((item for item in conditions if item.status == wanted), None)
        if found is not None:
            return _condition("Ready", wanted, found.reason, found.message, now)
    if not conditions:
        why = refused[0] if refused else invalid("no component is declared")
        return _condition("Ready", "False", why.reason, str(why), now)
    return _condition("Ready", "True", conditions[0].reason, "", now)


def _advisory(type_: str, refused: list[Refusal], before: Mapping[str, Condition], now: Instant) -> Condition | None:
    """Absent until the first refusal, True again later; `Info`, so not part of `Ready` (§0.4)."""
    mine = [item for item in refused if item.condition == type_]
    if mine:
        # One condition for all components: the reason is the first one's, the text tells of each.
        message = "; ".join(dict.fromkeys(str(item) for item in mine))
        condition = _condition(type_, "False", mine[0].reason, message, now)
    elif type_ in before:
        condition = _condition(type_, "True", _ACCEPTED[type_], "", now)
    else:
        return None
    return msgspec.structs.replace(condition, severity="Info")


def _mirror(seen: Seen, before: JsonObject) -> JsonDict:
    lifecycle: JsonDict = {}
    if seen.status is not None:
        stored = decode_object(seen.replica.status)
        lifecycle = {field: stored.get(field, 0) for field in _COUNTS}
        lifecycle |= {field: stored[field] for field in _MIRRORED if stored.get(field) not in (None, "", [])}
        parent = seen.replica.metadata.annotations.get(PARENT_GENERATION, "")
        observed: JsonValue = _known(before, "lifecycle").get("observedGeneration")
        if seen.status.observed_generation == seen.replica.metadata.generation and parent.isdecimal():
            observed = int(parent)
        if observed is not None:
            lifecycle["observedGeneration"] = observed
    return {
        "lifecycle": lifecycle,
        "scaleTargetRef": {
            "apiVersion": API_VERSION,
            "kind": INFERENCE_REPLICAS.name,
            "name": seen.replica.metadata.name,
        },
    }


def _known(stored: JsonObject, field: str) -> JsonObject:
    """A part of the stored status; what has a shape we never write is nothing to keep."""
    value = stored.get(field)
    return value if is_object(value) else {}


def _conditions(status: JsonObject) -> dict[str, Condition]:
    found: dict[str, Condition] = {}
    items = status.get("conditions")
    for item in items if is_array(items) else ():
        if not is_object(item):
            continue
        try:
            condition = msgspec.convert(item, Condition)
        except msgspec.ValidationError:
            continue  # a condition of a shape we never write is nothing to keep
        found[condition.type] = condition
    return found


def _kept(condition: Condition, before: Condition | None) -> Condition:
    if before is None or before.status != condition.status:
        return condition
    return msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)


def _condition(type_: str, status: str, reason: str, message: str, now: Instant) -> Condition:
    return Condition(
        type=type_, status=status, reason=reason, message=message, last_transition_time=format_instant(now)
    )
