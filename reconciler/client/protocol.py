"""What the manager needs of an API server, free of any client library.

Two transports carry the same typed client: HTTP to a real server, and a direct call into the embedded one. Whatever
speaks `Transport` can replace either.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import Enum
from typing import Generic, Protocol, TypeVar

import msgspec

from reconciler.api.json import JsonObject
from reconciler.api.kinds import Kind
from reconciler.api.meta import ListMeta
from reconciler.api.time import Seconds

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """One request: the path is unescaped, the query in order, the body already encoded."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = {}
    body: bytes | None = None


class Response(Protocol):
    """An answer whose head has arrived; its body is read at once or in pieces."""

    @property
    def status(self) -> int:
        """The HTTP status code."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers, keys in lower case."""
        ...

    async def read(self) -> bytes:
        """The whole body; the answer is closed afterwards."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; ends at the server's clean end of file."""
        ...

    async def close(self) -> None:
        """Give the connection up at once, whatever is still to come."""
        ...


class Transport(Protocol):
    """Carries requests to one API server, with the caller's credentials."""

    async def send(self, request: Request, *, connect: Seconds, silence: Seconds | None) -> Response:
        """Send and return as soon as the head of the answer has arrived.

        Args:
            request: what to send.
            connect: limit for a connection and for the answer's head.
            silence: limit for each wait on a piece of the body; None for no limit.

        Raises:
            ConnectionFailed: the server couldn't be reached, or broke off; for a write the outcome is unknown.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class PatchType(Enum):
    """How a patch body is read; the value is its media type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Propagation(Enum):
    """What becomes of dependents when their owner is deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Preconditions(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What must still be true of an object for its deletion to happen."""

    uid: str | None = None
    resource_version: str | None = None


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list."""

    metadata: ListMeta
    items: tuple[T, ...]


class Reader(Protocol):
    """Live reads."""

    async def get(self, kind: Kind[T], name: str, namespace: str | None = None) -> T:
        """One object.

        Raises:
            NotFound: there is none.
            ApiError: see `reconciler.client.errors`.
        """
        ...

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
        """One page of a type's objects (all of them when `limit` is 0)."""
        ...


class Writer(Protocol):
    """Writes. Each returns the object the server stored."""

    async def create(self, kind: Kind[T], body: JsonObject, namespace: str | None = None) -> T:
        """Store a new object.

        Raises:
            AlreadyExists: the name is taken.
            Invalid: the server refused the object itself.
        """
        ...

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
        ...

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: JsonObject | list[JsonObject],
        namespace: str | None = None,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
    ) -> T:
        """Change parts of an object. A `metadata.resourceVersion` (or a JSON `test`) in the body is a precondition."""
        ...

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
        ...


class Client(Reader, Writer, Protocol):
    """Reads and writes of one authenticated session."""


class Source(Protocol):
    """What an informer reads from: pages as bytes, and watches as a stream of bytes."""

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
        """One page of a list as the server sent it.

        Raises:
            Expired: the continue token is no longer known; start the list again.
            ApiError: see `reconciler.client.errors`.
        """
        ...

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
        """Open a watch; the answer's status is known to be good when this returns.

        Raises:
            Expired: the version is too old; list again.
            ApiError: see `reconciler.client.errors`.
        """
        ...
