"""The forms an object can be asked for in: as it is, its metadata alone, or as rows of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.embedded.refusals import Refusal
from reconciler.embedded.resources import Resource
from reconciler.embedded.store import Stored
from reconciler.embedded.values import fresh


class PlainView:
    """Objects as they are stored."""

    def __init__(self, resource: Resource) -> None:
        """Show objects of a type."""
        self._resource = resource
        self._head = resource.head

    def one(self, stored: Stored) -> bytes:
        """The JSON of one object."""
        if self._resource.outward is not None:
            return msgspec.json.encode(self._resource.outward(stored.data))
        return self._head + stored.tail

    def bookmark(self, version: int, annotations: JsonObject) -> bytes:
        """The JSON of an object that only carries a version."""
        return msgspec.json.encode(empty_object(self._resource.api_version, self._resource.kind, version, annotations))

    def page(self, items: Iterable[Stored], metadata: JsonObject) -> bytes:
        """The JSON of a list. Items of built-in types come without `apiVersion` and `kind`, as from a real server."""
        resource = self._resource
        if resource.outward is not None:
            parts = [self.one(item) for item in items]
        elif resource.custom:
            parts = [self._head + item.tail for item in items]
        else:
            parts = [b"{" + item.tail for item in items]
        head = {"kind": resource.listed_as, "apiVersion": resource.api_version, "metadata": metadata}
        return msgspec.json.encode(head)[:-1] + b',"items":[' + b",".join(parts) + b"]}"


class PartialView:
    """Metadata alone."""

    def one(self, stored: Stored) -> bytes:
        """The JSON of one object's metadata."""
        return msgspec.json.encode(
            {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": stored.data["metadata"],
            }
        )

    def bookmark(self, version: int, annotations: JsonObject) -> bytes:
        """The JSON of an object that only carries a version."""
        return msgspec.json.encode(empty_object("meta.k8s.io/v1", "PartialObjectMetadata", version, annotations))

    def page(self, items: Iterable[Stored], metadata: JsonObject) -> bytes:
        """The JSON of a list."""
        head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        rows = b",".join(self.one(item) for item in items)
        return msgspec.json.encode(head)[:-1] + b',"items":[' + rows + b"]}"


def empty_object(api_version: str, kind: str, version: int, annotations: JsonObject) -> JsonDict:
    """What a bookmark carries."""
    metadata: JsonDict = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = annotations
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata}


def as_kind(stored: Stored, resource: Resource) -> JsonDict:
    """An object as a tree of one's own, in the version it was asked for."""
    if resource.outward is not None:
        return resource.outward(stored.data)
    return {**fresh(stored.data), "apiVersion": resource.api_version, "kind": resource.kind}


def wanted_form(headers: Mapping[str, str]) -> str:
    """Which form the `Accept` header asks for: `plain`, `table` or `partial`.

    Raises:
        Refusal: 406, none of the accepted forms can be given.
    """
    accept = headers.get("accept") or headers.get("Accept") or "*/*"
    for part in accept.split(","):
        media, *parameters = [piece.strip() for piece in part.split(";")]
        if media not in ("application/json", "*/*", "application/*"):
            continue
        named = dict(re.findall(r"(\w+)=([\w.]+)", ";".join(parameters)))
        match named.get("as"), named.get("v", "v1"):
            case None, _:
                return "plain"
            case "Table", "v1":
                return "table"
            case (("PartialObjectMetadata" | "PartialObjectMetadataList"), "v1"):
                return "partial"
    message = (
        "only the following media types are accepted: application/json, application/json;as=Table;g=meta.k8s.io;v=v1, "
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    )
    raise Refusal(406, "NotAcceptable", message)
