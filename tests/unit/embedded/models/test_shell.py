"""What the models do when the API server refuses, and how their tasks end."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from reconciler.api.json import JsonDict
from reconciler.api.kube import PODS
from reconciler.api.meta import Key
from reconciler.api.time import Instant, LoopClock, Seconds
from reconciler.client.api import ApiClient
from reconciler.client.errors import ApiError, Conflict, Invalid, NotFound, Throttled, Unavailable
from reconciler.client.protocol import Request, Response, Transport
from reconciler.embedded import ApiServer
from reconciler.embedded.models import Cluster
from reconciler.embedded.models.shell import Workers
from reconciler.embedded.models.watches import alongside
from tests.unit.embedded.models.build import NOW

pytestmark = pytest.mark.looptime
POD = Key("ns", "e-0-0")


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (Unavailable("500"), 1.0),
        (Conflict("409"), 1.0),
        (Throttled("429", retry_after=Seconds(7.0)), 7.0),
        (Throttled("429"), 1.0),
        (Invalid("422"), 30.0),
        (NotFound("404"), None),
    ],
)
async def test_a_key_comes_up_again_as_late_as_the_error_asks(error: ApiError, delay: float | None) -> None:
    clock = LoopClock(Instant(0.0))
    tries: list[float] = []

    async def work(key: Key) -> None:
        assert key == POD
        tries.append(round(clock.now(), 1))
        if len(tries) == 1:
            raise error

    workers = Workers("model", clock, work, 3)
    async with workers.running():
        workers.agenda.add(POD)
        await asyncio.sleep(120)
    assert tries == ([0.0] if delay is None else [0.0, delay])


async def test_a_defect_in_the_work_ends_the_model_loudly() -> None:
    async def work(key: Key) -> None:
        raise RuntimeError(f"defect at {key}")

    workers = Workers("model", LoopClock(Instant(0.0)), work, 1)

    async def run() -> None:
        async with workers.running():
            workers.agenda.add(POD)
            await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(RuntimeError, match="defect at ns/e-0-0")


async def test_an_exception_of_the_body_comes_out_as_it_is_and_ends_the_tasks() -> None:
    ended = asyncio.Event()

    async def eternal() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.set()

    async def run() -> None:
        async with alongside(eternal()):
            await asyncio.sleep(1)
            raise LookupError("of the body")

    with pytest.raises(LookupError, match="of the body"):
        await run()
    assert ended.is_set()


class Refusing:
    """A transport on which every binding is refused for a while."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.bindings = 0
        self.refuses = True

    async def send(self, request: Request, *, connect: Seconds, silence: Seconds | None) -> Response:
        if request.path.endswith("/binding"):
            self.bindings += 1
            if self.refuses:
                request = Request(request.method, "/api/v1/nonsense", headers=request.headers, body=b"{")
        return await self.inner.send(request, connect=connect, silence=silence)

    async def close(self) -> None:
        await self.inner.close()


async def test_refused_bindings_are_tried_again_without_haste() -> None:
    clock = LoopClock(NOW)
    server = ApiServer(clock, random=Random(1))
    transport = Refusing(server.transport("scheduler"))
    cluster = Cluster(
        ApiClient(server.transport("models")),
        clock,
        random=Random(1),
        clients={"scheduler": ApiClient(transport)},
    )
    user = ApiClient(server.transport("user"))
    async with cluster.running():
        await cluster.add_node("node-0", gpus=2)
        for name in ("a", "b"):
            container: JsonDict = {"name": "main", "image": "repo/engine:1"}
            spec: JsonDict = {"containers": [container]}
            body: JsonDict = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            await user.create(PODS, body, "default")
        await asyncio.sleep(10.5)
        assert 10 <= transport.bindings <= 24
        transport.refuses = False
        await asyncio.sleep(40)
        for name in ("a", "b"):
            assert (await user.get(PODS, name, "default")).is_true("Ready")
