"""What an operator applies, on a real API server: accepted, complete, and with the rights it should give.

The definitions and the catalogue's runtimes belong to a whole cluster, so these tests have one of their own, in which
no other test's manager can stumble over them.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from deploy.generate import EXTRACT, render_extract
from deploy.schema.pods import pod_schemas
from tests.control_plane.api import ApiError
from tests.control_plane.build import Programs
from tests.control_plane.commands import Options
from tests.control_plane.harness import ControlPlane, KubectlError
from tests.control_plane.processes import until

DEPLOY = Path(__file__).parents[2] / "deploy"
CATALOGUE = Path(__file__).parents[3] / "shared/data/ome-catalog"
ISVCS = "/apis/ome.io/v1beta1/namespaces/default/inferenceservices"
IREPS = "/apis/ome.io/v1beta1/namespaces/default/inferencereplicas"
CSRS = "/apis/ome.io/v1beta1/clusterservingruntimes"
STRICT = {"fieldValidation": "Strict"}
DRY = {"fieldValidation": "Strict", "dryRun": "All"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """A control plane to which `deploy/` has been applied as its kustomization says."""
    directory = tmp_path_factory.mktemp("deploy")
    async with ControlPlane.start(directory, Options(programs=programs)) as control_plane:
        await control_plane.kubectl("apply", "--server-side", "-k", str(DEPLOY))
        await control_plane.definitions_served()
        yield control_plane


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": name}, "spec": spec}


def replica(name: str, **spec: Any) -> dict[str, Any]:
    made = {
        "parentRef": {"name": "llm"},
        "component": "engine",
        "replicas": 2,
        "runners": [{"name": "default", "size": 1}],
    }
    return {
        "apiVersion": "ome.io/v1beta1",
        "kind": "InferenceReplica",
        "metadata": {"name": name},
        "spec": made | spec,
    }


def rolling(**budgets: Any) -> dict[str, Any]:
    return {"lifecycle": {"updateStrategy": {"rollingUpdate": budgets}}}


async def refusal(cluster: ControlPlane, path: str, body: dict[str, Any]) -> str:
    """Why the API server doesn't take an object."""
    with pytest.raises(ApiError) as refused:
        await cluster.request("POST", path, body, parameters=DRY)
    message: str = refused.value.response.json()["message"]
    return message


# --- the definitions -------------------------------------------------------------------------------------------------


async def test_the_definitions_are_structural_and_served(cluster: ControlPlane) -> None:
    found = await cluster.request("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    conditions = {
        item["metadata"]["name"]: {one["type"]: one["status"] for one in item["status"]["conditions"]}
        for item in found.json()["items"]
    }
    names = ("clusterservingruntimes", "inferencereplicas", "inferenceservices", "servingruntimes")
    assert conditions == {f"{name}.ome.io": {"NamesAccepted": "True", "Established": "True"} for name in names}


async def test_the_pods_in_them_are_this_kubernetes_version_s(cluster: ControlPlane) -> None:
    document = (await cluster.request("GET", "/openapi/v3/api/v1")).json()
    assert EXTRACT.read_text() == render_extract(pod_schemas(document))


async def test_every_file_of_the_catalogue_is_accepted_by_strict_validation(cluster: ControlPlane) -> None:
    if not CATALOGUE.is_dir():
        pytest.skip(f"the catalogue of real manifests is not there: {CATALOGUE}")
    files = {path: list(yaml.safe_load_all(path.read_text())) for path in sorted(CATALOGUE.glob("*/*.yaml"))}
    objects = [item for items in files.values() for item in items if item]
    ours = [item for item in objects if item["kind"] != "Namespace"]
    names = {item["metadata"].get("namespace", "default") for item in ours}
    namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(names)]

    await apply(cluster, namespaces)
    await apply(cluster, ours)

    kinds = [item["kind"] for item in ours]
    assert (kinds.count("ClusterServingRuntime"), kinds.count("InferenceService")) == (105, 71)


async def apply(cluster: ControlPlane, objects: list[dict[str, Any]]) -> None:
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    await cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", stdin=manifest, timeout=120)


async def test_the_samples_are_accepted_and_references_are_completed(cluster: ControlPlane) -> None:
    await cluster.kubectl("apply", "--server-side", "--validate=strict", "-f", str(DEPLOY / "samples"))

    shown = (await cluster.kubectl("get", "isvc", "llm", "-n", "llm-demo", "-o", "json")).stdout
    assert json.loads(shown)["spec"]["runtime"] == {
        "name": "llm-server",
        "kind": "ClusterServingRuntime",
        "apiGroup": "ome.io",
        "autoSync": True,
    }


async def test_plain_apply_takes_what_users_write(cluster: ControlPlane) -> None:
    """Only the definitions are too large for it."""
    body = json.dumps(service("plain", model={"name": "m"}, engine={"minReplicas": 1}))
    await cluster.kubectl("apply", "-f", "-", stdin=body)
    said = await cluster.kubectl("apply", "-f", "-", stdin=body)
    assert said.stdout == "inferenceservice.ome.io/plain unchanged\n"


async def test_get_shows_what_matters(cluster: ControlPlane) -> None:
    await cluster.request("POST", ISVCS, service("shown", model={"name": "m"}, runtime={"name": "r"}))
    status = {"url": "http://shown:8080", "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.request("PATCH", f"{ISVCS}/shown/status", {"status": status})
    await cluster.request("POST", IREPS, replica("shown-engine"))
    counts = {"replicas": 3, "readyReplicas": 2, "availableReplicas": 1}
    await cluster.request("PATCH", f"{IREPS}/shown-engine/status", {"status": counts})

    services = (await cluster.kubectl("get", "isvc", "shown")).stdout.splitlines()
    replicas = (await cluster.kubectl("get", "irep", "shown-engine")).stdout.splitlines()

    assert services[0].split() == ["NAME", "URL", "READY", "BASEMODEL", "RUNTIME", "AGE"]
    assert services[1].split()[:-1] == ["shown", "http://shown:8080", "True", "m", "r"]
    assert replicas[0].split() == ["NAME", "COMPONENT", "DESIRED", "CURRENT", "READY", "AVAILABLE", "AGE"]
    assert replicas[1].split()[:-1] == ["shown-engine", "engine", "2", "3", "2", "1"]
    await cluster.kubectl("wait", "--for=condition=Ready", "isvc/shown", "--timeout=5s")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "isvc.spec.engine.lifecycle",
            ["How the Instances of the component are updated", "migrationPolicy", "updateStrategy"],
        ),
        (
            "isvc.spec.engine.lifecycle.updateStrategy.type",
            ["SurgeThenDrain", "RecreatePod", "How the pods of an Instance are replaced"],
        ),
        ("clusterservingruntimes.spec.engineConfig.runner.resources", ["limits", "requests"]),
        ("irep.status.instanceStatuses", ["readySince", "runningRevision"]),
        ("irep.status.rolloutHold", ["gate", "since"]),
    ],
)
async def test_explain_explains(cluster: ControlPlane, path: str, words: list[str]) -> None:
    said = (await cluster.kubectl("explain", path)).stdout
    assert [word for word in words if word not in said] == []


# --- what is kept ----------------------------------------------------------------------------------------------------


async def test_a_replica_keeps_its_pods_and_its_rows_whole(cluster: ControlPlane) -> None:
    pod = {
        "containers": [
            {
                "name": "c",
                "image": "registry.example/llm-server:v1",
                "resources": {"limits": {"cpu": 10, "memory": "16Gi", "nvidia.com/gpu": "1"}},
                "ports": [{"name": "http", "containerPort": 8080}],
                "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
            }
        ],
        "volumes": [{"name": "weights", "hostPath": {"path": "/raid"}}, {"name": "shm", "emptyDir": {"sizeLimit": 1}}],
        "terminationGracePeriodSeconds": 600,
    }
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": pod}
    sent = replica("whole", runners=[{"name": "default", "size": 1, "template": template}])
    row = {
        "index": 3,
        "phase": "Updating",
        "operation": {"id": "update-3-1", "step": "Later", "later": 1},
        "later": {"x": 1},
    }

    created = await cluster.request("POST", IREPS, sent, parameters=STRICT)
    patched = await cluster.request("PATCH", f"{IREPS}/whole/status", {"status": {"instanceStatuses": [row]}})

    assert created.json()["spec"] == sent["spec"]
    assert patched.json()["status"]["instanceStatuses"] == [row]


async def test_a_component_may_hold_any_part_of_a_pod(cluster: ControlPlane) -> None:
    part = {
        "runner": {"readinessProbe": {"httpGet": {"path": "/ready"}}},
        "volumes": [{"name": "dshm"}],
        "affinity": {"podAntiAffinity": {}},
        "worker": {"runner": {"env": [{"name": "A", "value": "x"}]}},
    }
    created = await cluster.request("POST", ISVCS, service("part", engine=part), parameters=DRY)
    assert created.json()["spec"]["engine"] == part


async def test_an_unknown_field_is_named_and_dropped_unless_validation_is_strict(cluster: ControlPlane) -> None:
    body = service("old", engine={"replica": 1}, predictor={})
    said = await refusal(cluster, ISVCS, body)
    assert 'unknown field "spec.engine.replica"' in said
    assert 'unknown field "spec.predictor"' in said
    stored = await cluster.request("POST", ISVCS, body, parameters={"dryRun": "All"})
    assert stored.json()["spec"] == {"engine": {}}


# --- what is refused -------------------------------------------------------------------------------------------------

BUDGET = "spec.engine.lifecycle.updateStrategy.rollingUpdate"
ZERO = "maxSurge=0 and maxUnavailable=0 together yield an unstartable rollout"


@pytest.mark.parametrize(
    ("budgets", "field", "words"),
    [
        ({"maxSurge": -1}, ".maxSurge", "InvalidRollingUpdateInteger"),
        ({"maxUnavailable": "-1%"}, ".maxUnavailable", "InvalidRollingUpdatePercent"),
        ({"maxUnavailable": "101%"}, ".maxUnavailable", "InvalidRollingUpdatePercent"),
        ({"maxSurge": "1"}, ".maxSurge", "InvalidRollingUpdatePercent"),
        ({"maxSurge": "half of them"}, ".maxSurge", "InvalidRollingUpdatePercent"),
        ({"maxSurge": 1.5}, ".maxSurge", "must be of type integer"),
        ({"partition": -1}, ".partition", "greater than or equal to 0"),
        ({"maxSurge": 0, "maxUnavailable": "0%"}, "", ZERO),
        ({"maxSurge": 0, "maxUnavailable": 0}, "", ZERO),
    ],
)
async def test_a_budget_that_cannot_be_is_refused_by_name(
    cluster: ControlPlane, budgets: dict[str, Any], field: str, words: str
) -> None:
    said = await refusal(cluster, ISVCS, service("budget", engine=rolling(**budgets)))
    assert f"{BUDGET}{field}: " in said
    assert words in said


@pytest.mark.parametrize("budgets", [{"maxSurge": 0}, {"maxUnavailable": "0%", "maxSurge": 1}, {"maxSurge": "100%"}])
async def test_a_budget_that_may_stall_is_admitted(cluster: ControlPlane, budgets: dict[str, Any]) -> None:
    await cluster.request("POST", ISVCS, service("stalls", engine=rolling(**budgets)), parameters=DRY)


async def test_two_zero_budgets_in_a_runtime_get_through(cluster: ControlPlane) -> None:
    body = {
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterServingRuntime",
        "metadata": {"name": "zero"},
        "spec": {"engineConfig": rolling(maxSurge=0, maxUnavailable=0)},
    }
    await cluster.request("POST", CSRS, body, parameters=DRY)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"engine": {"minReplicas": -1}}, "spec.engine.minReplicas must be >= 0"),
        ({"router": {"maxReplicas": 0}}, "spec.router.maxReplicas must be >= 1"),
        ({"deploymentMode": "Serverless"}, 'spec.deploymentMode: Unsupported value: "Serverless"'),
        ({"engine": {"lifecycle": {"updateStrategy": {"type": "Recreate"}}}}, 'Unsupported value: "Recreate"'),
        ({"engine": {"runner": {"env": [{"value": "x"}]}}}, "spec.engine.runner.env[0].name: Required value"),
        ({"engine": {"runner": {"resources": {"limits": {"cpu": "two"}}}}}, "spec.engine.runner.resources.limits.cpu"),
        ({"engine": {"runner": "image"}}, 'spec.engine.runner in body must be of type object: "string"'),
    ],
)
async def test_a_bad_field_of_a_service_is_refused_by_name(
    cluster: ControlPlane, spec: dict[str, Any], words: str
) -> None:
    assert words in await refusal(cluster, ISVCS, service("bad", **spec))


async def test_a_replica_stays_with_its_service_and_component(cluster: ControlPlane) -> None:
    await cluster.request("POST", IREPS, replica("fixed"))
    for change, words in (
        ({"component": "router"}, "spec.component is immutable"),
        ({"parentRef": {"name": "other"}}, "spec.parentRef is immutable"),
        ({"parentRef": None}, "spec.parentRef is immutable"),
    ):
        with pytest.raises(ApiError) as refused:
            await cluster.request("PATCH", f"{IREPS}/fixed", {"spec": change})
        assert words in refused.value.response.json()["message"]


async def test_a_replica_is_scaled_by_its_subresource(cluster: ControlPlane) -> None:
    await cluster.request("POST", IREPS, replica("scaled"))
    status = {"replicas": 2, "labelSelector": "ome.io/inferenceservice=llm,component=engine"}
    await cluster.request("PATCH", f"{IREPS}/scaled/status", {"status": status})

    await cluster.kubectl("scale", "irep", "scaled", "--replicas=0")

    scale = (await cluster.request("GET", f"{IREPS}/scaled/scale")).json()
    assert scale["spec"].get("replicas", 0) == 0
    assert scale["status"] == {"replicas": 2, "selector": status["labelSelector"]}
    stored = (await cluster.request("GET", f"{IREPS}/scaled")).json()
    assert stored["spec"]["replicas"] == 0


# --- the manager's rights --------------------------------------------------------------------------------------------

MANAGER = "system:serviceaccount:ome-system:ome-manager"
READ = "get list watch"

MAY = [
    ("ome.io", "inferenceservices servingruntimes clusterservingruntimes basemodels clusterbasemodels", READ),
    ("ome.io", "inferenceservices/status", "patch"),
    ("ome.io", "inferencereplicas", f"{READ} create patch delete"),
    ("ome.io", "inferencereplicas/status", "patch update"),
    ("ome.io", "inferenceservices/finalizers inferencereplicas/finalizers", "update"),
    ("", "pods", f"{READ} create delete"),
    ("", "pods/status", "get patch"),
    ("", "services serviceaccounts", f"{READ} create patch delete"),
    ("", "events", "create patch"),
    ("apps", "controllerrevisions", f"{READ} create delete"),
    ("discovery.k8s.io", "endpointslices", READ),
    ("rbac.authorization.k8s.io", "roles rolebindings", f"{READ} create patch delete"),
]

MUST_NOT = [
    ("ome.io", "inferenceservices", "create update patch delete deletecollection"),
    ("ome.io", "servingruntimes clusterservingruntimes basemodels clusterbasemodels", "create update patch delete"),
    ("ome.io", "inferenceservices/status", "update"),
    ("ome.io", "inferencereplicas", "update deletecollection"),
    ("ome.io", "inferencereplicas/scale", "get patch update"),
    ("", "pods", "update patch deletecollection"),
    ("", "pods/status", "update"),
    ("", "pods/exec pods/attach pods/portforward pods/eviction pods/binding pods/ephemeralcontainers", "create"),
    ("", "pods/log", "get"),
    ("", "services events serviceaccounts", "update deletecollection"),
    ("", "events", "get list watch delete"),
    ("", "secrets configmaps", f"{READ} create patch delete"),
    ("", "serviceaccounts/token", "create"),
    ("", "nodes namespaces persistentvolumes persistentvolumeclaims", f"{READ} patch delete"),
    ("", "users groups serviceaccounts", "impersonate"),
    ("apps", "deployments statefulsets daemonsets replicasets", f"{READ} create patch delete"),
    ("apps", "controllerrevisions", "update patch deletecollection"),
    ("discovery.k8s.io", "endpointslices", "create update patch delete"),
    ("rbac.authorization.k8s.io", "roles clusterroles", "bind escalate"),
    ("rbac.authorization.k8s.io", "clusterroles clusterrolebindings", f"{READ} create patch delete"),
    ("coordination.k8s.io", "leases", f"{READ} create update patch delete"),
    ("apiextensions.k8s.io", "customresourcedefinitions", f"{READ} create patch delete"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", f"{READ} patch"),
]


async def allowed(cluster: ControlPlane, group: str, resource: str, verb: str, namespace: str) -> bool:
    """What `kubectl auth can-i --as` asks."""
    name, _, subresource = resource.partition("/")
    asked = {"group": group, "resource": name, "subresource": subresource, "verb": verb, "namespace": namespace}
    groups = ["system:serviceaccounts", "system:serviceaccounts:ome-system", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": MANAGER, "groups": groups, "resourceAttributes": asked},
    }
    answer = await cluster.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer.json()["status"]["allowed"])


@pytest.mark.parametrize(("rows", "expected"), [(MAY, True), (MUST_NOT, False)], ids=["may", "must not"])
async def test_the_manager_has_these_rights_in_any_namespace(
    cluster: ControlPlane, rows: list[tuple[str, str, str]], expected: bool
) -> None:
    wrong = [
        (group, resource, verb)
        for group, resources, verbs in rows
        for resource in resources.split()
        for verb in verbs.split()
        if await allowed(cluster, group, resource, verb, "default") is not expected
    ]
    assert wrong == []


async def test_leases_are_the_manager_s_only_where_it_lives(cluster: ControlPlane) -> None:
    found = {
        verb: await allowed(cluster, "coordination.k8s.io", "leases", verb, "ome-system")
        for verb in ("get", "create", "update", "patch", "list", "delete")
    }
    assert [verb for verb, may in found.items() if may] == ["get", "create", "update", "patch"]


async def test_the_manager_can_give_a_router_what_it_needs_and_nothing_more(cluster: ControlPlane) -> None:
    kubeconfig = await cluster.service_account_kubeconfig("ome-system", "ome-manager")

    async def grant(resource: str) -> str:
        rules = f"--resource={resource}"
        said = await cluster.kubectl(
            "create", "role", f"router-{resource}", "--verb=get,list,watch", rules, kubeconfig=kubeconfig, check=False
        )
        return said.stdout or said.stderr

    assert await grant("pods") == "role.rbac.authorization.k8s.io/router-pods created\n"
    bind = ("create", "rolebinding", "router", "--role=router-pods", "--serviceaccount=default:default")
    await cluster.kubectl(*bind, kubeconfig=kubeconfig)
    assert "attempting to grant RBAC permissions not currently held" in await grant("secrets")


async def test_the_manager_s_account_reads_and_does_not_write_services(cluster: ControlPlane) -> None:
    kubeconfig = await cluster.service_account_kubeconfig("ome-system", "ome-manager")
    await cluster.kubectl("get", "isvc,clusterservingruntimes,irep,pods,services", "-A", kubeconfig=kubeconfig)
    with pytest.raises(KubectlError, match="cannot create resource"):
        await cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service("mine")), kubeconfig=kubeconfig)


async def test_the_manager_s_pod_is_admitted_where_pods_are_restricted(cluster: ControlPlane) -> None:
    async def pods() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = (await cluster.request("GET", "/api/v1/namespaces/ome-system/pods")).json()[
            "items"
        ]
        return found or None

    (pod,) = await until(pods, what="the Deployment has its pod", within=30)
    assert pod["spec"]["serviceAccountName"] == "ome-manager"
    assert pod["spec"]["containers"][0]["args"] == ["run"]
