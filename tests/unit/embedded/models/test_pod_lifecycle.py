"""The life of a pod as a kubelet tells it: every behaviour, every way out, the texts compared exactly."""

from __future__ import annotations

import math

import pytest

from reconciler.api.json import JsonDict
from reconciler.api.time import Instant, format_instant
from reconciler.embedded.models.behaviour import BEHAVIOUR_ANNOTATION
from tests.unit.embedded.models.build import NOW, PodOnNode, behaves


def at(seconds: float) -> str:
    return format_instant(Instant(NOW + seconds))


def test_a_normal_pod_is_pulled_started_loaded_and_ready() -> None:
    pod = PodOnNode()
    assert (pod.phase, pod.state()) == ("Pending", "waiting:ContainerCreating")
    assert pod.condition("ContainersReady") == {
        "type": "ContainersReady",
        "status": "False",
        "reason": "ContainersNotReady",
        "message": "containers with unready status: [main]",
        "lastTransitionTime": at(0),
    }
    assert pod.is_true("Initialized")
    assert not pod.is_true("PodReadyToStartContainers")

    pod.until(3)
    assert (pod.phase, pod.state(), pod.status["podIP"]) == ("Running", "running", "10.0.0.1")
    assert pod.container()["state"] == {"running": {"startedAt": at(3)}}
    assert pod.is_true("PodReadyToStartContainers")
    assert not pod.is_true("Ready")

    pod.until(7)
    assert pod.container()["ready"] is True
    assert pod.condition("Ready") == {"type": "Ready", "status": "True", "lastTransitionTime": at(7)}
    assert pod.condition("ContainersReady")["lastTransitionTime"] == at(7)
    assert pod.container()["restartCount"] == 0
    assert pod.wake_at is None
    assert len(pod.writes) == 3  # seen, running, ready


def test_nothing_is_written_of_a_pod_in_which_nothing_happens() -> None:
    pod = PodOnNode()
    pod.until(7)
    writes = len(pod.writes)
    pod.until(100_000)
    assert len(pod.writes) == writes


def test_ready_waits_for_every_readiness_gate_and_other_conditions_stay() -> None:
    pod = PodOnNode(spec={"readinessGates": [{"conditionType": "ome.io/serving"}, {"conditionType": "x/y"}]})
    pod.until(8)
    assert pod.is_true("ContainersReady")
    assert pod.condition("Ready")["reason"] == "ReadinessGatesNotReady"
    assert pod.condition("Ready")["message"] == (
        'corresponding condition of pod readiness gate "ome.io/serving" does not exist., '
        'corresponding condition of pod readiness gate "x/y" does not exist.'
    )
    pod.set_condition("ome.io/serving", "True")
    pod.set_condition("x/y", "False")
    assert pod.condition("Ready")["message"] == 'the status of pod readiness gate "x/y" is not "True", but False'
    pod.until(20)
    pod.set_condition("x/y", "True")
    assert pod.condition("Ready") == {"type": "Ready", "status": "True", "lastTransitionTime": at(20)}
    assert pod.condition("ContainersReady")["lastTransitionTime"] == at(7)

    pod.until(30)
    pod.set_condition("ome.io/serving", "False")
    assert pod.condition("Ready")["status"] == "False"
    assert pod.is_true("ContainersReady")
    assert pod.is_true("x/y")


def test_a_startup_probe_keeps_started_false_until_loaded() -> None:
    container: JsonDict = {"name": "main", "image": "repo/engine:1", "startupProbe": {"httpGet": {"port": 80}}}
    pod = PodOnNode(spec={"containers": [container]})
    pod.until(4)
    assert (pod.state(), pod.container()["started"], pod.container()["ready"]) == ("running", False, False)
    pod.until(7)
    assert (pod.container()["started"], pod.container()["ready"]) == (True, True)


def test_init_containers_run_one_after_the_other_before_the_rest() -> None:
    init: list[JsonDict] = [{"name": "first", "image": "i:1"}, {"name": "second", "image": "i:2"}]
    pod = PodOnNode(spec={"initContainers": init})
    assert pod.state() == "waiting:PodInitializing"
    assert pod.condition("Initialized")["reason"] == "ContainersNotInitialized"
    assert pod.condition("Initialized")["message"] == "containers with incomplete status: [first second]"
    pod.until(8)  # 2 s pull, 1 s start, 5 s run
    assert pod.condition("Initialized")["message"] == "containers with incomplete status: [second]"
    pod.until(15)
    assert (pod.phase, pod.is_true("Initialized")) == ("Pending", False)
    pod.until(16)
    assert pod.is_true("Initialized")
    pod.until(16 + 7)
    assert (pod.phase, pod.is_true("Ready")) == ("Running", True)


def test_a_bad_image_alternates_between_error_and_back_off_that_doubles() -> None:
    pod = PodOnNode(behaves(pull_error="ErrImagePull"))
    pod.until(2)
    assert pod.state() == "waiting:ErrImagePull"
    pod.until(3)
    assert pod.state() == "waiting:ImagePullBackOff"
    assert pod.container()["state"] == {
        "waiting": {
            "reason": "ImagePullBackOff",
            "message": 'Back-off pulling image "repo/engine:1": ErrImagePull: failed to pull and unpack image '
            '"repo/engine:1": failed to resolve reference "repo/engine:1": repo/engine:1: not found',
        }
    }
    pod.until(13)
    assert pod.state() == "waiting:ErrImagePull"
    pod.until(33)
    assert pod.state() == "waiting:ImagePullBackOff"
    pod.until(34)
    assert pod.state() == "waiting:ErrImagePull"
    assert (pod.phase, pod.container()["restartCount"]) == ("Pending", 0)
    pod.set_image("repo/engine:2")
    assert pod.state() == "waiting:ContainerCreating"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"pull_error": "InvalidImageName"}, "waiting:InvalidImageName"),
        ({"create_error": "CreateContainerConfigError"}, "waiting:CreateContainerConfigError"),
        ({"create_error": "CreateContainerError"}, "waiting:CreateContainerError"),
        ({"load_seconds": math.inf}, "running"),
    ],
)
def test_what_never_gets_ready_stays_as_it_is_and_asks_for_no_more_time(changes: dict[str, float], state: str) -> None:
    pod = PodOnNode(behaves(**changes))
    pod.until(5)
    assert (pod.state(), pod.is_true("Ready"), pod.wake_at) == (state, False, None)


def test_a_crash_at_start_restarts_at_once_then_backs_off_and_doubles() -> None:
    pod = PodOnNode(behaves(crash_seconds=1))
    pod.until(4)
    assert (pod.state(), pod.container()["restartCount"]) == ("terminated:Error", 0)
    pod.until(5)
    assert (pod.state(), pod.container()["restartCount"], pod.phase) == ("running", 1, "Running")
    assert pod.container()["lastState"] == {
        "terminated": {
            "exitCode": 1,
            "reason": "Error",
            "startedAt": at(3),
            "finishedAt": at(4),
            "containerID": pod.container()["lastState"]["terminated"]["containerID"],  # type: ignore[index,call-overload]
        }
    }
    pod.until(7)
    assert pod.container()["state"] == {
        "waiting": {
            "reason": "CrashLoopBackOff",
            "message": "back-off 10s restarting failed container=main pod=e-0-0_ns(uid-e-0-0)",
        }
    }
    assert (pod.phase, pod.is_true("Ready")) == ("Running", False)
    pod.until(17)
    assert (pod.state(), pod.container()["restartCount"]) == ("running", 2)
    pod.until(19)
    assert "back-off 20s" in str(pod.container()["state"])
    pod.until(3600)
    assert "back-off 5m0s" in str(pod.container()["state"])


def test_a_crash_once_stays_up_afterwards() -> None:
    pod = PodOnNode(behaves(crash_seconds=1, crashes=1))
    pod.until(20)
    assert (pod.container()["restartCount"], pod.is_true("Ready"), pod.wake_at) == (1, True, None)


def test_a_crash_after_ready_takes_ready_away_and_moves_its_transition() -> None:
    pod = PodOnNode(behaves(crash_seconds=10, crash_counts_from_ready=True))
    pod.until(16)
    assert pod.is_true("Ready")
    pod.until(17)
    assert (pod.is_true("Ready"), pod.condition("Ready")["lastTransitionTime"]) == (False, at(17))
    pod.until(18 + 4)
    assert (pod.is_true("Ready"), pod.container()["restartCount"]) == (True, 1)


def test_a_flap_loses_ready_and_gets_it_back_without_a_restart() -> None:
    pod = PodOnNode(behaves(flap_ready_seconds=10, flap_unready_seconds=5))
    pod.until(17)
    assert (pod.is_true("Ready"), pod.state()) == (False, "running")
    pod.until(22)
    assert (pod.is_true("Ready"), pod.container()["restartCount"]) == (True, 0)
    pod.until(32)
    assert not pod.is_true("Ready")


@pytest.mark.parametrize(
    ("policy", "exit_code", "phase"),
    [("Never", 1, "Failed"), ("Never", 0, "Succeeded"), ("OnFailure", 0, "Succeeded"), ("OnFailure", 1, "Running")],
)
def test_restart_policies_other_than_always_end_pods(policy: str, exit_code: int, phase: str) -> None:
    pod = PodOnNode(behaves(crash_seconds=1, exit_code=exit_code), spec={"restartPolicy": policy})
    pod.until(6)
    assert pod.phase == phase


def test_after_an_image_change_in_place_ready_stays_true_until_the_kill_is_done() -> None:
    pod = PodOnNode()
    pod.until(10)
    before = pod.container()
    pod.set_image("repo/engine:2")
    pod.until(12.9)
    assert (pod.container(), pod.is_true("Ready")) == (before, True)
    pod.until(13)
    assert (pod.state(), pod.is_true("Ready"), pod.container()["image"]) == (
        "terminated:Completed",
        False,
        "repo/engine:1",
    )
    assert (pod.phase, pod.container()["restartCount"]) == ("Running", 0)
    pod.until(16)
    assert (pod.state(), pod.container()["image"], pod.container()["restartCount"]) == ("running", "repo/engine:2", 1)
    assert pod.container()["imageID"] != before["imageID"]
    assert pod.container()["containerID"] != before["containerID"]
    assert not pod.is_true("Ready")
    pod.until(20)
    assert pod.is_true("Ready")
    assert pod.condition("Ready")["lastTransitionTime"] == at(20)


def test_an_image_change_in_place_to_a_bad_image_keeps_the_old_image_in_the_status() -> None:
    pod = PodOnNode(rules=[("*:2", behaves(pull_error="ErrImagePull"))])
    pod.until(10)
    pod.set_image("repo/engine:2")
    pod.until(16)
    assert (pod.state(), pod.container()["image"], pod.container()["restartCount"], pod.phase) == (
        "waiting:ImagePullBackOff",
        "repo/engine:1",
        0,
        "Running",
    )
    pod.set_image("repo/engine:3")
    pod.until(30)
    assert (pod.is_true("Ready"), pod.container()["image"]) == (True, "repo/engine:3")


def test_a_deleted_pod_runs_its_hook_ready_then_stops_and_is_deleted() -> None:
    container: JsonDict = {
        "name": "main",
        "image": "repo/engine:1",
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "sleep 5; true"]}}},
    }
    pod = PodOnNode(spec={"containers": [container]})
    pod.until(10)
    pod.delete(grace=30)
    pod.until(14.9)
    assert (pod.is_true("Ready"), pod.state()) == (True, "running")
    pod.until(15)
    assert (pod.is_true("Ready"), pod.state(), pod.deletions) == (False, "running", 0)
    pod.until(17)
    assert (pod.state(), pod.phase, pod.deletions) == ("terminated:Completed", "Succeeded", 1)
    assert pod.condition("Ready")["reason"] == "PodCompleted"


def test_a_deleted_pod_that_hangs_is_killed_at_the_end_of_its_grace() -> None:
    pod = PodOnNode(behaves(shutdown_seconds=math.inf, ready_in_shutdown=True))
    pod.until(10)
    pod.delete(grace=600)
    pod.until(609)
    assert (pod.is_true("Ready"), pod.deletions) == (True, 0)
    pod.until(610)
    assert (pod.state(), pod.phase, pod.deletions) == ("terminated:Error", "Failed", 1)
    assert pod.container()["state"]["terminated"]["exitCode"] == 137  # type: ignore[index,call-overload]


def test_a_second_deletion_may_shorten_the_grace() -> None:
    pod = PodOnNode(behaves(shutdown_seconds=math.inf))
    pod.until(10)
    pod.delete(grace=600)
    pod.until(20)
    pod.delete(grace=5)
    pod.until(24)
    assert pod.deletions == 0
    pod.until(25)
    assert pod.deletions == 1


@pytest.mark.parametrize("seconds", [0.0, 2.5])
def test_a_pod_whose_containers_never_ran_goes_at_once(seconds: float) -> None:
    pod = PodOnNode()
    pod.until(seconds)
    pod.delete(grace=600)
    assert (pod.deletions, pod.phase) == (1, "Failed")


def test_a_pod_that_a_finalizer_holds_is_deleted_once_and_left_alone() -> None:
    pod = PodOnNode(metadata={"finalizers": ["x/y"]})
    pod.until(10)
    pod.delete(grace=0)
    writes = len(pod.writes)
    pod.until(1000)
    assert (pod.deletions, len(pod.writes), pod.wake_at) == (1, writes, None)


def test_an_evicted_pod_fails_and_its_object_stays() -> None:
    pod = PodOnNode()
    pod.until(10)
    pod.run.evict(pod.now, "The node was low on resource: memory.")
    pod.until(11)
    assert (pod.phase, pod.status["reason"]) == ("Failed", "Evicted")
    assert pod.status["message"] == "The node was low on resource: memory."
    assert (pod.is_true("Ready"), pod.condition("Ready")["reason"], pod.deletions) == (False, "PodFailed", 0)
    pod.delete(grace=30)
    assert pod.deletions == 1


def test_a_crash_made_to_happen_names_its_reason() -> None:
    pod = PodOnNode()
    pod.until(10)
    assert pod.run.crash(pod.now, "main", 137, "OOMKilled")
    pod.settle()
    assert pod.state() == "terminated:OOMKilled"
    assert not pod.run.crash(pod.now, "main")


def test_a_new_kubelet_goes_on_from_the_status_it_finds() -> None:
    first = PodOnNode()
    first.until(10)
    second = PodOnNode(status=first.status)
    assert second.writes == []
    first_loading = PodOnNode()
    first_loading.until(4)
    second = PodOnNode(status=first_loading.status)
    assert second.writes == []
    second.until(4)
    assert second.is_true("Ready")
    evicted = PodOnNode()
    evicted.run.evict(NOW, "gone")
    evicted.settle()
    assert PodOnNode(status=evicted.status).writes == []


def test_a_status_somebody_spoilt_is_written_again() -> None:
    pod = PodOnNode()
    pod.until(10)
    pod.until(20)
    pod.set_condition("Ready", "False")
    assert pod.condition("Ready") == {"type": "Ready", "status": "True", "lastTransitionTime": at(20)}


def test_a_behaviour_that_can_not_be_understood_shows_in_the_status() -> None:
    pod = PodOnNode(metadata={"annotations": {BEHAVIOUR_ANNOTATION: "lazy"}})
    pod.until(10)
    assert pod.state() == "waiting:CreateContainerConfigError"
    assert "lazy" in str(pod.container()["state"])
    assert "is no behaviour; known are bad-image, config-error" in str(pod.container()["state"])


def test_a_pod_on_the_host_network_has_the_address_of_its_node() -> None:
    pod = PodOnNode(spec={"hostNetwork": True})
    pod.until(3)
    assert (pod.status["podIP"], pod.status["hostIP"]) == ("192.168.0.1", "192.168.0.1")
