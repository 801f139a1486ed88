"""OpenAPI v3, as much of it as clients act on.

`kubectl` looks for two things: whether a type's requests take `fieldValidation` (else it validates by itself, against
schemas that aren't here), and the schema of a type for `explain`. Custom types come with their whole schema, built-in
ones with what all objects have in common. Patches are not announced as strategic: kubectl then merges built-in types by
the keys compiled into it, instead of by keys that would have to be repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.embedded.answers import Answer
from reconciler.embedded.refusals import Refusal, no_such_resource
from reconciler.embedded.resources import Registry, Resource

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUERY = ("dryRun", "fieldManager", "fieldValidation")
Schemas = Mapping[tuple[str, str, str], JsonObject]


def answer(path: str, registry: Registry, schemas: Schemas, headers: Mapping[str, str]) -> Answer:
    """The index, or the document of one group and version.

    Raises:
        Refusal: 406 for v2, which clients read as protobuf only; 404 for a group that isn't served.
    """
    if path == "/openapi/v2":
        raise Refusal(406, "NotAcceptable", "only OpenAPI v3 is served, at /openapi/v3")
    base = "/openapi/v3"
    places = {
        (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
        for group, versions in registry.versions().items()
        for version in versions
    }
    if path.rstrip("/") == base:
        paths: JsonDict = {place: {"serverRelativeURL": f"{base}/{place}?hash={registry.edition}"} for place in places}
        return Answer.of(200, {"paths": paths})
    place = path.removeprefix(f"{base}/")
    if place not in places:
        raise no_such_resource()
    return Answer.of(200, _document(registry, *places[place], schemas))


def _document(registry: Registry, group: str, version: str, schemas: Schemas) -> JsonDict:
    paths: JsonDict = {}
    components: JsonDict = {_META: {"type": "object", "description": "Metadata of an object."}}
    for resource in registry:
        if (resource.group, resource.version) != (group, version):
            continue
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        scope = "/namespaces/{namespace}" if resource.namespaced else ""
        collection = f"{base}{scope}/{resource.plural}"
        name = _schema_name(resource)
        paths[collection] = {"post": _operation(resource, "post", name), "get": _operation(resource, "list", name)}
        paths[f"{collection}/{{name}}"] = {
            "get": _operation(resource, "get", name),
            "put": _operation(resource, "put", name),
            "patch": _operation(resource, "patch", name),
        }
        components[name] = _component(resource, schemas.get((group, version, resource.kind)))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _schema_name(resource: Resource) -> str:
    group = ".".join(reversed((resource.group or "core").split(".")))
    return f"{group}.{resource.version}.{resource.kind}"


def _identity(resource: Resource) -> JsonDict:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _operation(resource: Resource, action: str, name: str) -> JsonDict:
    writes = action in ("post", "put", "patch")
    parameters: list[JsonValue] = [
        {"name": query, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for query in (_QUERY if writes else ())
    ]
    body: JsonDict = {"schema": {"$ref": f"#/components/schemas/{name}"}}
    operation: JsonDict = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": {"application/json": body}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _identity(resource),
    }
    if writes:
        media = "application/merge-patch+json" if action == "patch" else "application/json"
        operation["requestBody"] = {"content": {media: body}, "required": True}
    return operation


def _component(resource: Resource, schema: JsonObject | None) -> JsonDict:
    common: JsonDict = {
        "apiVersion": {"type": "string", "description": "The version of this representation of the object."},
        "kind": {"type": "string", "description": "The type of the object."},
        "metadata": {"allOf": [{"$ref": f"#/components/schemas/{_META}"}], "default": {}},
    }
    identity: list[JsonValue] = [_identity(resource)]
    base: JsonDict = dict(schema) if schema is not None else {"type": "object"}
    properties = base.get("properties")
    base["properties"] = {**(properties if isinstance(properties, dict) else {}), **common}
    base["x-kubernetes-group-version-kind"] = identity
    return base
