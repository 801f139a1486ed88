"""CustomResourceDefinitions: a stored one serves its type, a removed one takes its objects along.

All versions of a type share one stored form, and differ in `apiVersion` only: conversion webhooks are not called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.api.json import JsonDict, JsonObject, JsonValue
from reconciler.embedded.builtin import CUSTOM_RESOURCE_DEFINITIONS
from reconciler.embedded.core import Author, Core
from reconciler.embedded.refusals import Cause, not_allowed, required, unsupported, wrong
from reconciler.embedded.resources import Column, Resource, Rules, ScalePaths, World
from reconciler.embedded.schema import CustomSchema
from reconciler.embedded.store import Change, Stored
from reconciler.embedded.values import child, fresh, look, my_objects, objects, own, text, texts, whole

_AUTHOR = Author("system:apiserver", "update", "status")
_REMOVER = Author("system:apiserver", "delete")
_STORAGE = CUSTOM_RESOURCE_DEFINITIONS.storage


class DefinitionRules(Rules):
    """The definitions themselves."""

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write the names that follow from others."""
        spec = own(body, "spec")
        names = own(spec, "names")
        kind = text(names, "kind")
        if kind:
            names.setdefault("listKind", f"{kind}List")
            names.setdefault("singular", kind.lower())
        spec.setdefault("conversion", {"strategy": "None"})
        for version in my_objects(spec, "versions"):
            for column in my_objects(version, "additionalPrinterColumns"):
                column.setdefault("type", "string")

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Names, scope, versions and their schemas."""
        spec = child(body, "spec")
        group, plural = text(spec, "group"), text(spec, "names", "plural")
        found = [required(f"spec.{field}") for field in ("group", "scope") if not text(spec, field)]
        found += [required(f"spec.names.{field}") for field in ("plural", "kind") if not text(spec, "names", field)]
        name = text(body, "metadata", "name")
        if name != f"{plural}.{group}":
            found.append(wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
        scope = text(spec, "scope")
        if scope and scope not in ("Cluster", "Namespaced"):
            found.append(unsupported("spec.scope", scope, ["Cluster", "Namespaced"]))
        versions = objects(spec, "versions")
        if sum(version.get("storage") is True for version in versions) != 1:
            detail = "must have exactly one version marked as storage version"
            found.append(wrong("spec.versions", [dict(version) for version in versions], detail))
        for position, version in enumerate(versions):
            where = f"spec.versions[{position}].schema.openAPIV3Schema"
            schema = child(version, "schema", "openAPIV3Schema")
            if not schema:
                found.append(required(where, "schemas are required"))
            else:
                found += _structural_problems(schema, where)
        if old is not None:
            for field in ("group", "scope"):
                if look(old, "spec", field) != spec.get(field):
                    found.append(wrong(f"spec.{field}", spec.get(field), "field is immutable"))
        return found


def _structural_problems(schema: JsonObject, where: str) -> list[Cause]:
    """What keeps a schema from being structural: every field needs a type, and knows its properties one way only."""
    found: list[Cause] = []
    free = (
        schema.get("x-kubernetes-int-or-string") is True or schema.get("x-kubernetes-preserve-unknown-fields") is True
    )
    if not text(schema, "type") and not free:
        found.append(required(f"{where}.type", "must not be empty for specified object fields"))
    if "properties" in schema and "additionalProperties" in schema:
        found.append(not_allowed(f"{where}.additionalProperties", "must not be used together with properties"))
    pattern = text(schema, "pattern")
    try:
        re.compile(pattern)
    except re.error as error:
        found.append(wrong(f"{where}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}"))
    for key, field in child(schema, "properties").items():
        if isinstance(field, dict):
            found += _structural_problems(field, f"{where}.properties[{key}]")
    for part in ("items", "additionalProperties"):
        below = schema.get(part)
        if isinstance(below, dict):
            found += _structural_problems(below, f"{where}.{part}")
    if text(schema, "type") == "array" and not child(schema, "items"):
        found.append(required(f"{where}.items", "must be specified"))
    return found


class CustomRules(Rules):
    """Objects of a custom type, by its schema."""

    def __init__(self, schema: CustomSchema, stored_as: str) -> None:
        """Keep objects under the storage version's `apiVersion`."""
        self._schema = schema
        self._stored_as = stored_as

    def unknown_fields(self, body: JsonDict) -> Sequence[str]:
        """Drop unknown fields."""
        return self._schema.prune(body)

    def complete(self, body: JsonDict, old: JsonObject | None, world: World) -> None:
        """Write defaults."""
        self._schema.complete(body)
        body["apiVersion"] = self._stored_as

    def check(self, body: JsonObject, old: JsonObject | None) -> Sequence[Cause]:
        """Check against the schema."""
        return self._schema.problems(body)


class Definitions:
    """Serves what the stored definitions define."""

    def __init__(self, core: Core) -> None:
        """React to writes of definitions."""
        self.schemas: dict[tuple[str, str, str], JsonObject] = {}
        """Group, version and kind to schema, for OpenAPI."""
        self._core = core
        core.registry.add(_with_rules(CUSTOM_RESOURCE_DEFINITIONS))
        core.reactions.append(self._react)

    def _react(self, resource: Resource, change: Change) -> None:
        if resource.storage != _STORAGE:
            return
        if change.after is None:
            if change.before is not None:
                self._withdraw(change.before.data)
            return
        stored = self._core.collection(_STORAGE).get("", change.after.name)
        if stored is None or stored.version != change.after.version:
            return
        before = None if change.before is None else change.before.data.get("spec")
        if before != stored.data.get("spec"):
            self._serve(stored)
        elif not objects(stored.data, "status", "conditions"):
            self._establish(stored)

    def _serve(self, stored: Stored) -> None:
        spec = child(stored.data, "spec")
        group, plural = text(spec, "group"), text(spec, "names", "plural")
        self._core.registry.remove(group, plural)
        for resource, schema in _resources(spec, served=True):
            self._core.registry.add(resource)
            self.schemas[group, resource.version, resource.kind] = schema
        if not objects(stored.data, "status", "conditions"):
            self._establish(stored)

    def _establish(self, stored: Stored) -> None:
        body = fresh(stored.data)
        now = self._core.stamp()
        spec = child(body, "spec")
        conditions: list[JsonValue] = [
            {
                "type": "NamesAccepted",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "NoConflicts",
                "message": "no conflicts found",
            },
            {
                "type": "Established",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
            },
        ]
        versions: list[JsonValue] = [
            text(version, "name") for version in objects(spec, "versions") if version.get("storage") is True
        ]
        body["status"] = {
            "conditions": conditions,
            "acceptedNames": dict(child(spec, "names")),
            "storedVersions": versions,
        }
        self._core.commit(_AUTHOR, CUSTOM_RESOURCE_DEFINITIONS, stored, body)

    def _withdraw(self, definition: JsonObject) -> None:
        """Remove the objects of a type, whatever holds them, and serve it no longer."""
        spec = child(definition, "spec")
        group, plural = text(spec, "group"), text(spec, "names", "plural")
        resource = next(item for item, _ in _resources(spec, served=False))
        for stored in list(self._core.collection((group, plural)).scan()):
            self._core.commit(_REMOVER, resource, stored, None)
        self._core.registry.remove(group, plural)
        for key in [key for key in self.schemas if key[0] == group and key[2] == resource.kind]:
            del self.schemas[key]


def _with_rules(resource: Resource) -> Resource:
    fields = {field: getattr(resource, field) for field in resource.__struct_fields__}
    return Resource(**{**fields, "rules": DefinitionRules()})


def _resources(spec: JsonObject, *, served: bool) -> list[tuple[Resource, JsonObject]]:
    """The versions of a definition, all or the served ones, the stored one first."""
    group, names = text(spec, "group"), child(spec, "names")
    versions = sorted(objects(spec, "versions"), key=lambda version: version.get("storage") is not True)
    stored_as = f"{group}/{text(versions[0], 'name')}"
    found: list[tuple[Resource, JsonObject]] = []
    for version in versions:
        if served and version.get("served") is not True:
            continue
        schema = child(version, "schema", "openAPIV3Schema")
        parts = child(version, "subresources")
        scale = parts.get("scale")
        resource = Resource(
            group=group,
            version=text(version, "name"),
            plural=text(names, "plural"),
            kind=text(names, "kind"),
            singular=text(names, "singular"),
            list_kind=text(names, "listKind"),
            short_names=tuple(texts(names, "shortNames")),
            categories=tuple(texts(names, "categories")),
            namespaced=text(spec, "scope") != "Cluster",
            status="status" in parts,
            scale=_scale(scale) if isinstance(scale, dict) else None,
            generation=True,
            unconditional_update=False,
            custom=True,
            rules=CustomRules(CustomSchema(schema), stored_as),
            columns=tuple(_column(column) for column in objects(version, "additionalPrinterColumns")),
            selectable=frozenset(text(field, "jsonPath").lstrip(".") for field in objects(version, "selectableFields")),
        )
        found.append((resource, schema))
    return found


def _scale(paths: JsonObject) -> ScalePaths:
    def steps(field: str) -> tuple[str, ...]:
        return tuple(filter(None, text(paths, field).split(".")))

    return ScalePaths(steps("specReplicasPath"), steps("statusReplicasPath"), steps("labelSelectorPath"))


def _column(column: JsonObject) -> Column:
    return Column(
        text(column, "name"),
        text(column, "type"),
        text(column, "jsonPath"),
        text(column, "format"),
        text(column, "description"),
        whole(column, "priority") or 0,
    )
