"""A stock `kubectl` on the embedded API server over HTTP: everything a user would do with the demo's cluster.

It needs kubectl alone, no control plane. The server runs in this process; kubectl is a child, as for any user.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from reconciler.api.time import Instant, LoopClock
from reconciler.embedded import ApiServer, serve
from tests.control_plane.build import Programs

LONGEST = 20.0
"""Seconds after which a command counts as hung."""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers: [{name: main, image: "image:1"}]
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: engine}
spec:
  replicas: 2
  selector: {matchLabels: {app: engine}}
  template:
    metadata: {labels: {app: engine}}
    spec: {containers: [{name: main, image: "image:1"}]}
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: things, kind: Thing, shortNames: [th]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties: {size: {type: integer, minimum: 1}, replicas: {type: integer}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
THING = """
apiVersion: ex.io/v1
kind: Thing
metadata: {name: one}
spec: {size: 3, replicas: 1}
"""
EVENT = """
apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: v1, kind: Pod, namespace: default, name: web, uid: UID}
reason: Tried
message: something was tried
type: Normal
lastTimestamp: "2027-01-15T07:59:00Z"
source: {component: test}
"""


class Kubectl:
    """Runs kubectl with a kubeconfig and a home of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.kubeconfig = folder / "kubeconfig"
        self._children: list[asyncio.subprocess.Process] = []
        self._environment = os.environ | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(folder)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            self.program, *arguments, env=self._environment, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self._children.append(child)
        return child

    async def stop(self) -> None:
        for child in self._children:
            if child.returncode is None:
                child.kill()
                await child.communicate()

    async def tried(self, *arguments: str, given: str = "", **environment: str) -> tuple[int, str]:
        self._environment |= environment
        process = await self.start(*arguments)
        async with asyncio.timeout(LONGEST):
            out, err = await process.communicate(given.encode())
        assert process.returncode is not None
        return process.returncode, out.decode() + err.decode()

    async def __call__(self, *arguments: str, given: str = "", **environment: str) -> str:
        code, said = await self.tried(*arguments, given=given, **environment)
        assert code == 0, said
        return said


@pytest.fixture
async def server() -> ApiServer:
    return ApiServer(LoopClock(Instant(1_800_000_000.0)), random=Random(1))


@pytest.fixture
async def kubectl(server: ApiServer, programs: Programs, tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with serve(server) as front:
        command = Kubectl(programs.kubectl, tmp_path)
        front.write_kubeconfig(command.kubeconfig)
        yield command
        await command.stop()


async def test_apply_get_describe_label_watch_delete(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.3" in await kubectl("version")
    assert "pod/web created" in await kubectl("apply", "-f", "-", given=POD)
    assert "pod/web configured" in await kubectl("apply", "-f", "-", given=POD.replace("image:1", "image:2"))
    assert "pod/web unchanged" in await kubectl("apply", "-f", "-", given=POD.replace("image:1", "image:2"))
    shown = await kubectl("get", "pods", "-o", "wide")
    assert shown.split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert "0/1     Pending" in shown
    watching = await kubectl.start("get", "pods", "--watch", "--output-watch-events")
    assert watching.stdout is not None
    assert b"EVENT" in await watching.stdout.readline()
    assert b"ADDED" in await watching.stdout.readline()
    await kubectl("label", "pod", "web", "tier=front")
    assert b"MODIFIED" in await watching.stdout.readline()
    assert "web" in await kubectl("get", "pods", "-l", "tier=front", "--show-labels")
    uid = await kubectl("get", "pod", "web", "-o", "jsonpath={.metadata.uid}")
    await kubectl("apply", "-f", "-", given=EVENT.replace("UID", uid))
    described = await kubectl("describe", "pod", "web")
    assert "image:2" in described
    assert "something was tried" in described
    assert "Tried" in await kubectl("get", "events")
    assert "something was tried" in await kubectl("events", "--for", "pod/web")
    code, said = await kubectl.tried("create", "-f", "-", given=POD)
    assert (code, 'Error from server (AlreadyExists): error when creating "STDIN": pods "web"' in said) == (1, True)
    assert 'pod "web" deleted' in await kubectl("delete", "pod", "web")
    assert b"MODIFIED" in await watching.stdout.readline()
    assert b"DELETED" in await watching.stdout.readline()
    assert "NotFound" in (await kubectl.tried("get", "pod", "web"))[1]


async def test_a_custom_type_from_definition_to_scale(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", given=DEFINITION)
    await kubectl("wait", "--for=condition=Established", "--timeout=5s", "crd/things.ex.io")
    assert "created" in await kubectl("create", "-f", "-", given=THING)
    assert (await kubectl("get", "th")).split() == ["NAME", "SIZE", "one", "3"]
    edit = {"KUBE_EDITOR": "sed -i -e 's/size: 3/size: 7/'"}
    assert "edited" in await kubectl("edit", "th", "one", **edit)
    assert "scaled" in await kubectl("scale", "th", "one", "--replicas=4")
    assert await kubectl("get", "th", "one", "-o", "jsonpath={.spec}") == '{"replicas":4,"size":7}'
    code, said = await kubectl.tried("apply", "-f", "-", given=THING.replace("size", "sise"))
    assert (code, 'strict decoding error: unknown field "spec.sise"' in said) == (1, True)
    code, said = await kubectl.tried("apply", "-f", "-", given=THING.replace("size: 3", "size: 0"))
    assert (code, "spec.size in body should be greater than or equal to 1" in said) == (1, True)
    assert "-required-" in await kubectl("explain", "thing.spec")
    patch = '{"status":{"phase":"Done"}}'
    waiting = await kubectl.start("wait", "--for=jsonpath={.status.phase}=Done", "--timeout=10s", "th/one")
    await kubectl("patch", "th", "one", "--subresource=status", "--type=merge", "-p", patch)
    async with asyncio.timeout(LONGEST):
        assert b"condition met" in (await waiting.communicate())[0]
    assert "deleted" in await kubectl("delete", "crd", "things.ex.io")


async def test_a_deployment_is_changed_in_every_way(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", given=DEPLOYMENT)
    assert "image updated" in await kubectl("set", "image", "deployment/engine", "main=image:2")
    assert "scaled" in await kubectl("scale", "deployment/engine", "--replicas=5")
    assert "0/5" in await kubectl("get", "deployments")
    await kubectl("annotate", "deployment/engine", "note=this")
    assert "2 desired" in await kubectl("apply", "-f", "-", given=DEPLOYMENT) + await kubectl("describe", "deploy")
    assert "replaced" in await kubectl("replace", "-f", "-", given=DEPLOYMENT)
    assert "image:3" in (await kubectl.tried("diff", "-f", "-", given=DEPLOYMENT.replace("image:1", "image:3")))[1]
    body = '{"spec":{"replicas":3}}'
    assert "patched" in await kubectl("patch", "deployment/engine", "-p", body)
    assert "3/3" not in await kubectl("get", "deployment/engine")
    assert "deleted" in await kubectl("delete", "deployment/engine", "--cascade=foreground")


async def test_the_short_forms_of_create_come_in_protobuf(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "lab")
    inside = ("--namespace", "lab")
    await kubectl("create", "deployment", "engine", "--image=image:1", "--replicas=0", "--port=80", *inside)
    spec = await kubectl("get", "deployment", "engine", "-o", "jsonpath={.spec}", *inside)
    assert '"replicas":0' in spec
    assert '"containerPort":80' in spec
    assert '"strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}' in spec
    await kubectl("create", "configmap", "settings", "--from-literal=a=b", *inside)
    assert await kubectl("get", "configmap", "settings", "-o", "jsonpath={.data}", *inside) == '{"a":"b"}'
    await kubectl("create", "secret", "generic", "hidden", "--from-literal=a=b", *inside)
    assert await kubectl("get", "secret", "hidden", "-o", "jsonpath={.data}", *inside) == '{"a":"Yg=="}'
    await kubectl("create", "serviceaccount", "robot", *inside)
    assert len((await kubectl("create", "token", "robot", "--duration=1h", *inside)).strip()) > 20
    await kubectl("create", "role", "reader", "--verb=get", "--resource=pods", *inside)
    await kubectl("create", "rolebinding", "reads", "--role=reader", "--serviceaccount=lab:robot", *inside)
    await kubectl("create", "service", "clusterip", "front", "--tcp=80:8080", *inside)
    assert "80/TCP" in await kubectl("get", "services", *inside)
    await kubectl("run", "one", "--image=image:1", *inside)
    code, said = await kubectl.tried(
        "apply", "-f", "-", given=POD.replace("containers:", "contained: 1\n  containers:")
    )
    assert (code, 'unknown field "spec.contained"' in said) == (1, True)
    assert "deleted" in await kubectl("delete", "namespace", "lab")
