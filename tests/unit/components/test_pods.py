"""Pod templates: main container, placeholders, gangs, what is added (`spec/components.md` §3.3-3.4, rows 18-23)."""

from __future__ import annotations

import pytest

from reconciler.api.json import object_at, objects_at
from reconciler.components.refusal import Refusal

from .given import cluster_model, env_of, main_of, pod_of, projected, runner_of, spec_of, template_meta

GANG = """
engineConfig:
  volumes: [{name: dshm, emptyDir: {medium: Memory}}]
  leader:
    runner: {image: "llm:v1", command: [serve, $(LWS_LEADER_ADDRESS), $(LWS_GROUP_SIZE), $(LWS_WORKER_INDEX)],
      resources: {limits: {nvidia.com/gpu: 8}}}
  worker:
    size: 1
    tolerations: [{key: gpu}]
    runner: {image: "llm:v1", command: [join, $(LWS_LEADER_ADDRESS)], resources: {requests: {nvidia.com/gpu: "8"}}}
"""


def refusal(service_spec: str, runtime_spec: str) -> tuple[str, str, str | None]:
    with pytest.raises(Refusal) as caught:
        projected(service_spec, runtime_spec)
    return caught.value.reason, str(caught.value), caught.value.component


def names(found: object) -> list[object]:
    return [item["name"] for item in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        ("{runner: {name: a}}", "{name: b, image: x}", "a"),
        ("{}", "{name: b, image: x}", "b"),
        ("{}", "{image: x}", "ome-container"),
    ],
)
def test_the_runners_name(mine: str, theirs: str, expected: str) -> None:
    assert main_of(projected(f"engine: {mine}", f"engineConfig: {{runner: {theirs}}}"))["name"] == expected


def test_the_runner_comes_before_the_sidecars() -> None:
    found = projected(
        "engine: {containers: [{name: agent, image: agent, ports: [{containerPort: 9000}]}]}",
        "engineConfig: {runner: {image: x, ports: [{containerPort: 8080}]}}",
    )
    assert names(objects_at(pod_of(found), "containers")) == ["ome-container", "agent"]


def test_a_container_of_the_runners_name_lies_over_it_with_its_args_appended() -> None:
    found = projected(
        "engine: {containers: [{name: ome-container, image: y, args: [b]}]}",
        "engineConfig: {runner: {image: x, command: [serve], args: [a]}}",
    )
    assert objects_at(pod_of(found), "containers") == [
        {"name": "ome-container", "image": "y", "command": ["serve"], "args": ["a", "b"]}
    ]


def test_without_a_runner_the_first_container_is_the_main_one() -> None:
    found = projected("engine: {containers: [{name: a, image: x}, {name: b, image: y}]}", "{}")
    assert names(objects_at(pod_of(found), "containers")) == ["a", "b"]


def test_no_container_and_no_image_are_named() -> None:
    assert refusal("engine: {}", "{}") == (
        "InvalidPodTemplate", "engine: no container: set runner in the component or in its runtime", "engine",
    )  # fmt: skip
    assert refusal("engine: {}", "engineConfig: {runner: {name: llm}}")[1] == "engine: container llm has no image"
    assert refusal("engine: {containers: [{name: agent}]}", "engineConfig: {runner: {image: x}}")[1] == (
        "engine: container agent has no image"
    )


def test_the_runtimes_top_level_pod_fields_lie_lowest() -> None:
    runtime = """
    schedulerName: volcano
    nodeSelector: {pool: gpu, zone: a}
    tolerations: [{key: low}]
    containers: [{name: ignored, image: x}]
    engineConfig: {nodeSelector: {zone: b}, runner: {image: x}}
    routerConfig: {runner: {image: x}}
    """
    pod = pod_of(projected("engine: {nodeSelector: {disk: ssd}}", runtime))
    assert pod["nodeSelector"] == {"pool": "gpu", "zone": "b", "disk": "ssd"}
    assert (pod["schedulerName"], pod["tolerations"]) == ("volcano", [{"key": "low"}])
    assert names(objects_at(pod, "containers")) == ["ome-container"]
    router = pod_of(projected("engine: {}\nrouter: {}", runtime, component="router"))
    assert router["schedulerName"] == "volcano"
    assert "nodeSelector" not in router


def test_placeholders_become_metadata_and_other_braces_stay() -> None:
    found = projected(
        "engine: {}",
        """
        engineConfig:
          runner:
            image: x
            args:
            - "{{ system_message }} {{.Name}}"
            - "{{ .Namespace }}/{{.Labels.team}}/{{.Annotations.note}}/{{.Labels.gone}}"
            - '{{index .Labels "app.io/tier"}} {{range .Items}}'
        """,
        labels={"team": "search", "app.io/tier": "gold"},
        annotations={"note": "hi"},
    )
    assert main_of(found)["args"] == [
        "{{ system_message }} llama-3-2-3b-instruct",
        "llama-demo/search/hi/{{.Labels.gone}}",
        "gold {{range .Items}}",
    ]


def test_a_gang_from_the_runtime_alone() -> None:
    found = projected("engine: {}", GANG)
    assert [(item["name"], item["size"]) for item in objects_at(spec_of(found), "runners")] == [
        ("leader", 1),
        ("worker", 1),
    ]
    assert template_meta(found, "leader") == template_meta(found, "worker")
    for runner in ("leader", "worker"):
        assert names(objects_at(pod_of(found, runner), "volumes")) == ["dshm"]
        assert pod_of(found, runner)["terminationGracePeriodSeconds"] == 600
    assert "tolerations" not in pod_of(found, "leader")
    assert "size" not in pod_of(found, "worker")


def test_a_gangs_size_is_its_workers() -> None:
    assert runner_of(projected("engine: {worker: {size: 3}}", GANG), "worker")["size"] == 3
    assert runner_of(projected("engine: {leader: {runner: {image: x}}, worker: {runner: {image: x}}}", "{}"), "worker")[
        "size"
    ] == 1  # fmt: skip


def test_lws_variables_come_where_they_are_expanded() -> None:
    found = projected("engine: {}", GANG)
    assert env_of(main_of(found, "leader")) == {
        "LWS_LEADER_ADDRESS": "$(OME_LEADER_ADDRESS)",
        "LWS_GROUP_SIZE": "2",
        "LWS_WORKER_INDEX": "0",
        "PARALLELISM_SIZE": "16",
    }
    assert env_of(main_of(found, "worker")) == {
        "LWS_LEADER_ADDRESS": "$(OME_LEADER_ADDRESS)",
        "PARALLELISM_SIZE": "16",
    }


def test_parallelism_counts_all_gpus_and_overwrites() -> None:
    runner = "runner: {env: [{name: PARALLELISM_SIZE, value: '1'}]}"
    found = projected(f"engine: {{leader: {{{runner}}}, worker: {{{runner}}}}}", GANG)
    for part in ("leader", "worker"):
        assert env_of(main_of(found, part))["PARALLELISM_SIZE"] == "16"


def test_no_gpu_no_parallelism() -> None:
    assert "PARALLELISM_SIZE" not in env_of(main_of(projected("engine: {}", "engineConfig: {runner: {image: x}}")))


def test_limits_count_before_requests() -> None:
    resources = "resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 1}}"
    found = projected("engine: {}", f"engineConfig: {{runner: {{image: x, {resources}}}}}")
    assert env_of(main_of(found))["PARALLELISM_SIZE"] == "2"


def test_a_component_runner_beside_a_gang_is_unused_and_told_if_it_is_the_users() -> None:
    assert projected("engine: {runner: {image: other}}", GANG).runner_ignored
    assert not projected("engine: {}", GANG + "  runner: {image: other}\n").runner_ignored
    assert main_of(projected("engine: {runner: {image: other}}", GANG), "leader")["image"] == "llm:v1"


def test_a_routers_config_is_environment_sorted() -> None:
    found = projected(
        "engine: {}\nrouter: {config: {Z: '1', A: '2'}}",
        "routerConfig: {config: {M: '3', A: '0'}, runner: {image: x, env: [{name: B, value: y}]}}",
        component="router",
    )
    assert list(env_of(main_of(found)).items()) == [("B", "y"), ("A", "2"), ("M", "3"), ("Z", "1")]


def test_the_grace_is_ten_minutes_unless_said() -> None:
    runtime = "engineConfig: {runner: {image: x}}"
    assert pod_of(projected("engine: {}", runtime))["terminationGracePeriodSeconds"] == 600
    assert (
        pod_of(projected("engine: {terminationGracePeriodSeconds: 0}", runtime))["terminationGracePeriodSeconds"] == 0
    )


def test_args_and_tolerations_replace_and_empty_ones_inherit() -> None:
    runtime = "engineConfig: {tolerations: [{key: a}], runner: {image: x, args: [p, q]}}"
    replaced = projected("engine: {tolerations: [{key: b}], runner: {args: [r]}}", runtime)
    assert (main_of(replaced)["args"], pod_of(replaced)["tolerations"]) == (["r"], [{"key": "b"}])
    inherited = projected("engine: {tolerations: [], runner: {args: []}}", runtime)
    assert (main_of(inherited)["args"], pod_of(inherited)["tolerations"]) == (["p", "q"], [{"key": "a"}])


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        ("{image: x, command: [serve, $(MODEL_PATH)]}", True),
        ("{image: x, args: [--model=$(MODEL_PATH)]}", True),
        ("{image: x, env: [{name: M, value: $(MODEL_PATH)/a}]}", True),
        ("{image: x, command: [serve]}", False),
        ("{image: x, command: [$(MODEL_PATH)], env: [{name: MODEL_PATH, value: /m}]}", False),
    ],
)
def test_a_model_path_nobody_defines_is_noticed(runner: str, expected: bool) -> None:
    assert projected("engine: {}", f"engineConfig: {{runner: {runner}}}").model_path_missing is expected


def test_labels_and_annotations_of_pods() -> None:
    found = projected(
        "engine: {labels: {team: mine}, annotations: {note: b}}",
        "engineConfig: {labels: {team: theirs, tier: gold}, runner: {image: x}}",
        labels={"team": "isvc", "owner": "me", "component": "spoof"},
        annotations={
            "note": "a",
            "ome.io/rollout-paused": "true",
            "ome.io/revision-history-limit": "3",
            "ome.io/runtime-sync": "t1",
            "ome.io/deploymentMode": "RawDeployment",
            "ome.io/migration-request-1": "x",
            "internal.ome.io/x": "y",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "plain": "yes",
        },
        model=cluster_model("{vendor: Mistral AI, modelFormat: {name: safetensors}}", annotations={
            "models.ome.io/category": "LARGE"}),
    )  # fmt: skip
    assert object_at(template_meta(found), "labels") == {
        "team": "mine",
        "tier": "gold",
        "owner": "me",
        "ome.io/inferenceservice": "llama-3-2-3b-instruct",
        "component": "engine",
        "serving-runtime": "srt-llama-3-2-3b-instruct",
        "fine-tuned-serving": "false",
        "base-model-name": "llama-3-2-3b-instruct",
        "base-model-size": "LARGE",
        "base-model-type": "Serving",
        "base-model-vendor": "Mistral-AI",
    }
    assert object_at(template_meta(found), "annotations") == {
        "note": "b",
        "plain": "yes",
        "ome.io/serving-runtime": "srt-llama-3-2-3b-instruct",
        "ome.io/base-model-name": "llama-3-2-3b-instruct",
        "ome.io/base-model-vendor": "Mistral AI",
        "ome.io/base-model-format": "safetensors",
    }
