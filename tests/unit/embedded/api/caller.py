"""Requests to an embedded server by a direct call, and a few bodies to send."""

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from reconciler.api.time import Instant
from reconciler.client.protocol import Request
from reconciler.embedded import ApiServer, Write
from reconciler.embedded.answers import Answer

EPOCH = Instant(1_800_000_000.0)
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/ex.io/v1/namespaces/default/things"

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

Query = Mapping[str, str] | Sequence[tuple[str, str]]


class FakeClock:
    """Stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.time = EPOCH

    def now(self) -> Instant:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time = Instant(self.time + seconds)


class Reply:
    """Status code and decoded body of an answer."""

    def __init__(self, answer: Answer) -> None:
        self.code = answer.status
        self.headers = answer.headers
        self.body: Any = json.loads(answer.body)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])


class Api:
    """A server, its clock, and every write that happened."""

    def __init__(self, **options: Any) -> None:
        self.clock = FakeClock()
        self.server = ApiServer(self.clock, random=Random(1), **options)
        self.writes: list[Write] = []
        self.server.add_write_hook(self.writes.append)

    def call(
        self, method: str, path: str, body: Any = None, query: Query = (), headers: Mapping[str, str] | None = None
    ) -> Reply:
        pairs = tuple(query.items() if isinstance(query, Mapping) else query)
        encoded = None if body is None else json.dumps(body).encode()
        answer = self.server.handle(Request(method, path, pairs, headers or {}, encoded), "tester")
        assert isinstance(answer, Answer)
        return Reply(answer)

    def get(self, path: str, query: Query = (), **headers: str) -> Reply:
        return self.call("GET", path, None, query, headers)

    def post(self, path: str, body: Any, query: Query = ()) -> Reply:
        return self.call("POST", path, body, query)

    def put(self, path: str, body: Any, query: Query = ()) -> Reply:
        return self.call("PUT", path, body, query)

    def patch(self, path: str, body: Any, kind: str = MERGE, query: Query = ()) -> Reply:
        return self.call("PATCH", path, body, query, {"content-type": kind})

    def delete(self, path: str, options: Any = None, query: Query = ()) -> Reply:
        return self.call("DELETE", path, options, query)

    def made(self, path: str, body: Any) -> Any:
        reply = self.post(path, body)
        assert reply.code == 201, reply.body
        return reply.body


def config(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"key": "value"}}


def pod(name: str, *, node: str = "", spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"containers": [{"name": "main", "image": "image:1"}], **(spec or {})}
    if node:
        body["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": body}


def deployment(name: str) -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "image": "image:1"}]},
    }
    return {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}


def owned_by(owner: Mapping[str, Any], *, blocks: bool = False) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": blocks,
        }
    ]


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["fast", "slow"], "default": "fast"},
                "replicas": {"type": "integer"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
                "budget": {"x-kubernetes-int-or-string": True},
                "parts": {"type": "array", "minItems": 1, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "nothing": {"type": "string", "nullable": True},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}},
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
        },
    },
}


def definition(schema: Mapping[str, Any] = SCHEMA, **version: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "things.ex.io"},
        "spec": {
            "group": "ex.io",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {
                            "name": "Ready",
                            "type": "string",
                            "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                        },
                    ],
                    **version,
                }
            ],
        },
    }


def thing(name: str, /, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "ex.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"size": 1, **spec}}
