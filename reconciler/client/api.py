"""The typed client: requests from kinds and names, Structs from bytes, errors by reaction.

It works over any `Transport`. Every request but a watch has one deadline, from the wait for the rate limit's leave to
the last byte; a watch has limits on its head and on silence instead, as its length is its purpose. Nothing is retried
here: whoever asked decides what an error means (a 401 with stale credentials apart, which the transport settles).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.kinds import Kind
from reconciler.api.meta import ListMeta
from reconciler.api.time import Seconds
from reconciler.client.answers import capped, error_of
from reconciler.client.errors import ConnectionFailed, Undecodable
from reconciler.client.protocol import (
    Page,
    PatchType,
    Preconditions,
    Propagation,
    Request,
    Response,
    Transport,
)
from reconciler.client.rate import TokenBucket

T = TypeVar("T")
JsonBody: TypeAlias = "JsonObject | list[JsonObject]"

DEADLINE = Seconds(30.0)
"""Default limit of one request, its answer included; an API server gives up on its own after 60 s."""
CONNECT = Seconds(10.0)
"""Default limit for a connection and the head of a watch's answer."""
QPS = 200.0
BURST = 400

_JSON = "application/json"
_ERROR_BODY = Seconds(5.0)
"""How long a refusal's body may take; its status is known already."""


class _WireList(msgspec.Struct, frozen=True):
    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class ApiClient:
    """A `Client` and an informers' `Source` over one transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        user_agent: str = "ome-manager",
        field_manager: str | None = None,
        deadline: Seconds = DEADLINE,
        connect: Seconds = CONNECT,
        qps: float | None = QPS,
        burst: int = BURST,
    ) -> None:
        """Use this transport; it is closed by `close`.

        Args:
            transport: carries the requests, with its credentials.
            user_agent: names us in audit logs.
            field_manager: owner of the fields we write; the server takes the user agent's name when None.
            deadline: limit of each request, its answer included.
            connect: limit of connection and head of a watch.
            qps: requests a second in the long run, None for no limit. Generous: the server's priority and fairness
                protects it better than a guess of ours; this only stops a runaway loop.
            burst: requests at once after a rest.
        """
        self._transport = transport
        self._user_agent = user_agent
        self._field_manager = field_manager
        self._deadline = deadline
        self._connect = connect
        self._bucket = None if qps is None else TokenBucket(qps, burst)

    async def close(self) -> None:
        """Close the transport's connections."""
        await self._transport.close()

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """One object.

        Raises:
            NotFound: there is none.
            ApiError: see `reconciler.client.errors`.
        """
        path = kind.path(_space(kind, namespace), name)
        return self._decode(kind.model, await self._call("GET", path), "GET", path)

    async def list(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> Page[T]:
        """One page of a type's objects (all of them when `limit` is 0).

        Raises:
            Expired: the continue token is no longer known.
            Undecodable: an item doesn't have the kind's shape; an informer is more patient.
        """
        body = await self.list_page_raw(
            kind,
            namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )
        path = kind.path(_space(kind, namespace))
        wire = self._decode(_WireList, body, "GET", path)
        items = tuple(self._decode(kind.model, item, "GET", path) for item in wire.items or ())
        return Page(wire.metadata, items)

    async def list_page_raw(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> bytes:
        """One page of a list as the server sent it; see `Source`."""
        query = _selection(label_selector, field_selector)
        if limit:
            query.append(("limit", str(limit)))
        if continue_token:
            query.append(("continue", continue_token))
        elif resource_version is not None:
            query.append(("resourceVersion", resource_version))
        return await self._call("GET", kind.path(_space(kind, namespace)), tuple(query))

    async def open_watch(
        self,
        kind: Kind[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int,
        allow_bookmarks: bool = True,
        send_initial_events: bool = False,
        silence: Seconds | None,
    ) -> Response:
        """Open a watch; see `Source`. The caller closes the answer.

        Args:
            kind: the type to watch.
            namespace: only in this namespace; None for all.
            resource_version: changes after this version are sent.
            label_selector: only objects with these labels.
            field_selector: only objects with these fields.
            timeout_seconds: when the server is to end the watch; a request, not a promise.
            allow_bookmarks: ask for bookmarks, about one a minute.
            send_initial_events: ask for the present state as synthetic events first.
            silence: limit for each wait on a piece of the stream.
        """
        query = [("watch", "true"), *_selection(label_selector, field_selector)]
        query += [("resourceVersion", resource_version), ("timeoutSeconds", str(timeout_seconds))]
        if allow_bookmarks:
            query.append(("allowWatchBookmarks", "true"))
        if send_initial_events:
            query += [("sendInitialEvents", "true"), ("resourceVersionMatch", "NotOlderThan")]
        path = kind.path(_space(kind, namespace))
        await self._leave()
        request = self._request("GET", path, tuple(query))
        response = await self._transport.send(request, connect=self._connect, silence=silence)
        if response.status == 200:
            return response
        try:
            async with asyncio.timeout(_ERROR_BODY):
                body = await response.read()
        except (TimeoutError, ConnectionFailed):
            body = b""  # the status alone decides what to do
        finally:
            await response.close()
        raise error_of(f"WATCH {path}", response.status, response.headers, body)

    async def create(self, kind: Kind[T], body: JsonObject, namespace: str | None = None) -> T:
        """Store a new object; its namespace is taken from its metadata when not given.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: the server refused the object itself.
        """
        space = _space(kind, namespace)
        if space is None and kind.namespaced:
            metadata = body.get("metadata")
            named = metadata.get("namespace") if isinstance(metadata, Mapping) else None
            space = named if isinstance(named, str) and named else None
        path = kind.path(space)
        return self._decode(kind.model, await self._call("POST", path, self._owned(), body), "POST", path)

    async def update(
        self,
        kind: Kind[T],
        name: str,
        body: JsonObject,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
    ) -> T:
        """Replace an object whole.

        Raises:
            Conflict: `metadata.resourceVersion` in the body is no longer the stored one.
        """
        path = kind.path(_space(kind, namespace), name, subresource)
        return self._decode(kind.model, await self._call("PUT", path, self._owned(), body), "PUT", path)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: JsonBody,
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
    ) -> T:
        """Change parts of an object. A `metadata.resourceVersion` (or a JSON `test`) in the body is a precondition.

        Raises:
            Conflict: a precondition no longer holds, or another manager owns an applied field.
            NotFound: there is no such object (an apply creates it instead).
        """
        owner = field_manager or self._field_manager
        if patch_type is PatchType.APPLY:
            owner = owner or self._user_agent  # the server demands one
        query = list(self._owned(owner))
        if force:
            query.append(("force", "true"))
        path = kind.path(_space(kind, namespace), name, subresource)
        answer = await self._call("PATCH", path, tuple(query), body, media_type=patch_type.value)
        return self._decode(kind.model, answer, "PATCH", path)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str | None = None,
        *,
        preconditions: Preconditions | None = None,
        grace_seconds: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Ask for deletion.

        Raises:
            NotFound: there is none.
            Conflict: a precondition no longer holds.
        """
        options: JsonDict = {}
        if preconditions is not None:
            options["preconditions"] = msgspec.to_builtins(preconditions)
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation.value
        body: JsonDict | None = {"kind": "DeleteOptions", "apiVersion": "v1", **options} if options else None
        await self._call("DELETE", kind.path(_space(kind, namespace), name), (), body)

    async def _call(
        self,
        method: str,
        path: str,
        query: tuple[tuple[str, str], ...] = (),
        body: JsonBody | None = None,
        *,
        media_type: str = _JSON,
    ) -> bytes:
        request = self._request(method, path, query, body, media_type)
        try:
            async with asyncio.timeout(self._deadline):
                await self._leave()
                response = await self._transport.send(request, connect=self._deadline, silence=self._deadline)
                try:
                    answer = await response.read()
                finally:
                    await response.close()
        except TimeoutError as error:
            raise ConnectionFailed(f"{method} {path}: no answer within {self._deadline:g} s") from error
        if 200 <= response.status < 300:
            return answer
        raise error_of(f"{method} {path}", response.status, response.headers, answer)

    def _request(
        self,
        method: str,
        path: str,
        query: tuple[tuple[str, str], ...],
        body: JsonBody | None = None,
        media_type: str = _JSON,
    ) -> Request:
        headers = {"accept": _JSON, "user-agent": self._user_agent}
        if body is None:
            return Request(method, path, query, headers)
        headers["content-type"] = media_type
        return Request(method, path, query, headers, msgspec.json.encode(body, enc_hook=_plain))

    def _owned(self, field_manager: str | None = None) -> tuple[tuple[str, str], ...]:
        owner = field_manager or self._field_manager
        return (("fieldManager", owner),) if owner else ()

    async def _leave(self) -> None:
        """Wait for the rate limit's leave."""
        if self._bucket is None:
            return
        wait = self._bucket.reserve(asyncio.get_running_loop().time())
        if wait > 0:
            await asyncio.sleep(wait)

    def _decode(self, model: type[T], body: bytes | msgspec.Raw, method: str, path: str) -> T:
        try:
            return _decoder(model).decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            words = f"{method} {path}: the answer isn't a readable {model.__name__}: {capped(str(error))}"
            raise Undecodable(words, status=200) from error


_DECODERS: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _decoder(model: type[T]) -> msgspec.json.Decoder[T]:
    found = _DECODERS.get(model)
    if found is None:
        found = _DECODERS[model] = msgspec.json.Decoder(model)
    return cast("msgspec.json.Decoder[T]", found)


def _space(kind: Kind[T], namespace: str | None) -> str | None:
    # Keys of cluster-scoped objects carry an empty namespace.
    return namespace or None


def _selection(label_selector: str, field_selector: str) -> list[tuple[str, str]]:
    pairs = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return [(name, value) for name, value in pairs if value]


def _plain(value: Any) -> Any:
    """What msgspec can't encode by itself: mappings other than dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"a {type(value).__name__} can't be written as JSON")
