"""Pod templates of a component: main container first, model and sizes added (`spec/components.md` §3.3-3.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from reconciler.api.json import (
    JsonDict,
    JsonObject,
    JsonValue,
    is_array,
    is_object,
    object_at,
    objects_at,
    text_at,
    thaw_object,
)
from reconciler.components.merge import merge
from reconciler.components.models import Model
from reconciler.components.refusal import SPEC_ACCEPTED, Refusal

MAIN_CONTAINER = "ome-container"
_POD, _MAIN = "pod spec", "main container"
"""How the merged parts are called in messages; which layer a field comes from is gone by then."""

POD_FIELDS = frozenset(
    {
        "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
        "enableServiceLinks", "ephemeralContainers", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
        "hostname", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
        "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
        "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "securityContext", "serviceAccount",
        "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
        "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
    }
)  # fmt: skip

_PLACEHOLDER = re.compile(
    r"\{\{\s*(?:\.(?P<plain>Name|Namespace)|\.(?P<map>Labels|Annotations)\.(?P<key>[\w./-]+)"
    r"|index\s+\.(?P<imap>Labels|Annotations)\s+\"(?P<ikey>[^\"]+)\")\s*\}\}"
)


class Subject(msgspec.Struct, frozen=True):
    """The InferenceService a template is rendered for."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Sizes(msgspec.Struct, frozen=True):
    """What a pod needs to know of its Instance's size.

    Attributes:
        pods: pods of one Instance.
        accelerators: resource names that count as GPUs, first match wins.
    """

    pods: int = 1
    accelerators: tuple[str, ...] = ("nvidia.com/gpu",)


def pod_fields(part: JsonObject) -> JsonDict:
    """The pod spec inside a component or runtime."""
    return {key: value for key, value in part.items() if key in POD_FIELDS}


def assemble(part: JsonObject, runner: JsonObject, subject: Subject, component: str) -> JsonDict:
    """A pod spec with its main container first.

    Args:
        part: pod fields, all layers merged.
        runner: the merged runner; empty where there is none.
        subject: whose placeholders are filled in.
        component: for messages.

    Raises:
        Refusal: there is no container, or one without an image.
    """
    spec = pod_fields(part)
    containers = [thaw_object(item) for item in objects_at(spec, "containers", f"spec.{component}")]
    if runner:
        main = thaw_object(runner)
        main["name"] = text_at(runner, "name") or MAIN_CONTAINER
        beside = next((item for item in containers if item.get("name") == main["name"]), None)
        if beside is not None:
            containers.remove(beside)
            main = _laid_over(main, beside)
    elif containers:
        main = containers.pop(0)
        main["name"] = text_at(main, "name") or MAIN_CONTAINER
    else:
        raise _flaw(component, "no container: set runner in the component or in its runtime")
    main = thaw_object(_as_object(_filled(main, subject)))
    spec["containers"] = [main, *containers]
    for item in (main, *containers):
        if not text_at(item, "image", f"container {item.get('name')}"):
            raise _flaw(component, f"container {text_at(item, 'name') or '(unnamed)'} has no image")
    return spec


def _flaw(component: str, what: str) -> Refusal:
    return Refusal(SPEC_ACCEPTED, "InvalidPodTemplate", f"{component}: {what}", component)


def _laid_over(main: JsonDict, beside: JsonObject) -> JsonDict:
    """A `containers` entry of the runner's name over it; its args are appended."""
    merged = merge(main, {key: value for key, value in beside.items() if key != "args"})
    before, added = main.get("args"), beside.get("args")
    if is_array(added) and added:
        merged["args"] = [*(before if is_array(before) else ()), *added]
    return merged


def _filled(value: JsonValue, subject: Subject) -> JsonValue:
    """Placeholders become the InferenceService's metadata; any other `{{...}}` stays."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(_replacement(subject), value)
    if is_array(value):
        return [_filled(item, subject) for item in value]
    if is_object(value):
        return {key: _filled(item, subject) for key, item in value.items()}
    return value


def _replacement(subject: Subject) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        plain = found.group("plain")
        if plain:
            return subject.name if plain == "Name" else subject.namespace
        source = subject.labels if "Labels" in (found.group("map"), found.group("imap")) else subject.annotations
        return source.get(found.group("key") or found.group("ikey"), found.group(0))

    return replace


def add_model(spec: JsonDict, model: Model | None, path: str) -> None:
    """Mount the model's files, tell the main container where they are, and ask for a node that has them."""
    main = _main(spec)
    if path and not _has_env(main, "MODEL_PATH"):
        main["env"] = [*_list(main, "env"), {"name": "MODEL_PATH", "value": path}]
    if model is None:
        return
    mounted = model.volume()
    if mounted is not None:
        volume, mount = mounted
        if all(item.get("name") != volume["name"] for item in objects_at(spec, "volumes", _POD)):
            spec["volumes"] = [*_list(spec, "volumes"), volume]
        if all(item.get("mountPath") != mount["mountPath"] for item in objects_at(main, "volumeMounts", _MAIN)):
            main["volumeMounts"] = [*_list(main, "volumeMounts"), mount]
    selector = model.node_selector()
    if selector:
        spec["nodeSelector"] = {**object_at(spec, "nodeSelector", _POD), **selector}


def add_parallelism(spec: JsonDict, sizes: Sizes) -> None:
    """`PARALLELISM_SIZE`: GPUs of the main container times pods of the Instance; overwrites, absent without GPUs."""
    main = _main(spec)
    gpus = accelerators_of(main, sizes.accelerators)
    if not gpus:
        return
    kept = [item for item in objects_at(main, "env", _MAIN) if item.get("name") != "PARALLELISM_SIZE"]
    main["env"] = [*kept, {"name": "PARALLELISM_SIZE", "value": str(gpus * sizes.pods)}]


def accelerators_of(container: JsonObject, names: tuple[str, ...]) -> int:
    """GPUs a container asks for: its limits before its requests, the first resource name that is there."""
    resources = object_at(container, "resources", _MAIN)
    for kind in ("limits", "requests"):
        amounts = object_at(resources, kind, f"{_MAIN}.resources")
        for name in names:
            amount = str(amounts.get(name, ""))
            if amount.isdecimal():
                return int(amount)
    return 0


def add_config(spec: JsonDict, config: Mapping[str, str]) -> None:
    """A router's `config` as environment, sorted; the container's own variables win."""
    main = _main(spec)
    added = [{"name": key, "value": config[key]} for key in sorted(config) if not _has_env(main, key)]
    if added:
        main["env"] = [*_list(main, "env"), *added]


def add_gang(spec: JsonDict, leader_address: str, pods: int, rank: str) -> None:
    """The variables of LeaderWorkerSet that the container's own command expands and doesn't set (§3.4)."""
    main = _main(spec)
    text = msgspec.json.encode([main.get("command"), main.get("args"), main.get("env")]).decode()
    values = {"LWS_LEADER_ADDRESS": leader_address, "LWS_GROUP_SIZE": str(pods), "LWS_WORKER_INDEX": rank}
    added = [
        {"name": name, "value": value}
        for name, value in values.items()
        if f"$({name})" in text and not _has_env(main, name)
    ]
    if added:
        main["env"] = [*added, *_list(main, "env")]


def expands_unknown_model_path(spec: JsonObject) -> bool:
    """Whether the main container uses a `$(MODEL_PATH)` that nobody defines."""
    main = objects_at(spec, "containers")[0]
    values = [item.get("value") for item in objects_at(main, "env", _MAIN)]
    text = msgspec.json.encode([main.get("command"), main.get("args"), values]).decode()
    return "$(MODEL_PATH)" in text and not _has_env(main, "MODEL_PATH")


def _main(spec: JsonDict) -> JsonDict:
    containers = spec["containers"]
    if not is_array(containers) or not isinstance(containers[0], dict):
        raise TypeError("a pod spec is assembled before it is added to")
    return containers[0]


def _list(part: JsonObject, field: str) -> list[JsonValue]:
    value = part.get(field)
    return list(value) if is_array(value) else []


def _has_env(container: JsonObject, name: str) -> bool:
    return any(item.get("name") == name for item in objects_at(container, "env", _MAIN))


def _as_object(value: JsonValue) -> JsonObject:
    if not is_object(value):
        raise TypeError("a container is an object")
    return value
