"""Getting, listing and watching.

A list is read at one version and continued at that version: the pages of one list fit together whatever was written
between them. The token says the version and the last key, and is good as long as the history reaches back that far,
five minutes at most, after which a real server's storage has been compacted.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

import msgspec

from reconciler.api.json import JsonDict
from reconciler.api.time import Instant, Seconds
from reconciler.embedded.answers import Answer, ErrorStream, WatchStream, WatchTerms
from reconciler.embedded.core import Core
from reconciler.embedded.refusals import Refusal, bad_request, expired, not_found, too_large
from reconciler.embedded.resources import Resource
from reconciler.embedded.selectors import Selector, parse_fields, parse_labels
from reconciler.embedded.store import Stored
from reconciler.embedded.tables import TableView
from reconciler.embedded.views import PartialView, PlainView, wanted_form

TOKEN_LIFE = Seconds(300.0)
WATCH_TIMEOUT = Seconds(1800.0)
"""How long a watch lasts that does not say."""

_GONE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Token(msgspec.Struct, frozen=True):
    """What a continue token says; version -1 means: from the present state."""

    rv: int
    start: str
    v: str = "meta.k8s.io/v1"


class Reads:
    """Answers read requests."""

    def __init__(self, core: Core, *, gone_as_status: bool) -> None:
        """Read from the core's state; watches from too far back are refused by status, or else by an event."""
        self._gone_as_status = gone_as_status
        self.streams: set[WatchStream] = set()
        self._core = core
        self._issued: dict[int, Instant] = {}

    def get(self, resource: Resource, namespace: str, name: str, headers: Mapping[str, str]) -> Answer:
        """One object.

        Raises:
            Refusal: there is none.
        """
        stored = self._core.get(resource, namespace, name)
        if stored is None:
            raise not_found(resource.group, resource.plural, name)
        return self.shown(200, resource, stored, headers)

    def shown(self, status: int, resource: Resource, stored: Stored, headers: Mapping[str, str]) -> Answer:
        """One object in the form the request wants."""
        return Answer(status, self._view(resource, headers).one(stored))

    def list(self, resource: Resource, namespace: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        """A page of a collection.

        Raises:
            Refusal: the query can't be read, the version is not there yet, or no longer.
        """
        selector = self._selector(resource, query)
        collection = self._core.collection(resource.storage)
        version, items = self._core.version, collection.scan(namespace)
        limit = _number(query, "limit")
        if token_text := query.get("continue", ""):
            token = _read_token(token_text)
            if token.rv < 0:
                items = collection.scan(namespace, token.start)
            else:
                version = token.rv
                self._check_age(token)
                items = self._earlier(resource, namespace, token)
        elif (asked := _version(query)) is not None:
            if asked > self._core.version:
                raise too_large(asked, self._core.version)
            if query.get("resourceVersionMatch") == "Exact":
                version = asked
                items = collection.as_of(asked, namespace)
        page, more = _take(items, selector, limit)
        metadata: JsonDict = {"resourceVersion": str(version)}
        if more:
            self._issued.setdefault(version, self._core.now())
            metadata["continue"] = _write_token(Token(version, page[-1].key))
            if not selector.labels and not selector.fields:
                metadata["remainingItemCount"] = more + sum(1 for _ in items)
        return Answer(200, self._view(resource, headers).page(page, metadata))

    def watch(
        self, resource: Resource, namespace: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> WatchStream | ErrorStream:
        """A watch, which has begun when this returns.

        Raises:
            Refusal: the query can't be read.
        """
        selector = self._selector(resource, query)
        collection = self._core.collection(resource.storage)
        since = _version(query)
        initial = query.get("sendInitialEvents")
        match_ = query.get("resourceVersionMatch", "")
        if initial is not None and match_ != "NotOlderThan":
            raise _bad_watch("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if initial is None and match_:
            raise _bad_watch("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        wants_state = flag(query, "sendInitialEvents") or (initial is None and not since)
        bookmarks = flag(query, "allowWatchBookmarks")
        try:
            past = () if wants_state or not since else collection.since(since)
        except Refusal as refusal:
            if self._gone_as_status:
                raise
            return ErrorStream(refusal)
        state = [item for item in collection.scan(namespace) if selector.matches(item.data)] if wants_state else []
        terms = WatchTerms(
            namespace=namespace,
            selector=selector,
            timeout=_number(query, "timeoutSeconds") or WATCH_TIMEOUT,
            bookmarks=bookmarks,
            since=since if since and not wants_state else self._core.version,
            initial=state,
            past=past,
            marks_initial_end=flag(query, "sendInitialEvents") and bookmarks,
        )

        def ended(stream: WatchStream) -> None:
            if stream in self.streams:
                self.streams.remove(stream)
                unlisten()

        stream = WatchStream(terms, self._view(resource, headers), lambda: self._core.version, ended)
        unlisten = collection.listen(stream.feed)
        self.streams.add(stream)
        return stream

    def _view(self, resource: Resource, headers: Mapping[str, str]) -> PlainView | PartialView | TableView:
        match wanted_form(headers):
            case "table":
                return TableView(resource, self._core.now())
            case "partial":
                return PartialView()
            case _:
                return PlainView(resource)

    def _selector(self, resource: Resource, query: Mapping[str, str]) -> Selector:
        return select(resource, query)

    def _check_age(self, token: Token) -> None:
        issued = self._issued.get(token.rv)
        if issued is None or self._core.now() - issued > TOKEN_LIFE:
            raise _gone(token)

    def _earlier(self, resource: Resource, namespace: str, token: Token) -> Iterator[Stored]:
        try:
            self._core.collection(resource.storage).since(token.rv)
        except Refusal as refusal:
            raise _gone(token) from refusal
        return self._core.collection(resource.storage).as_of(token.rv, namespace, token.start)


def select(resource: Resource, query: Mapping[str, str]) -> Selector:
    """The selector of a query.

    Raises:
        Refusal: 400, it can't be read.
    """
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return Selector(parse_labels(labels), parse_fields(fields, resource.group, resource.plural, resource.selectable))


def flag(query: Mapping[str, str], field: str) -> bool:
    """A yes or no of a query, read as Go clients and others write it: all but `false` and `0` is yes."""
    value = query.get(field)
    return value is not None and value.lower() not in ("false", "0")


def _take(items: Iterator[Stored], selector: Selector, limit: int) -> tuple[list[Stored], int]:
    """The first matching items, and whether (1) or not (0) another one follows."""
    page: list[Stored] = []
    for item in items:
        if not selector.matches(item.data):
            continue
        if limit and len(page) == limit:
            return page, 1
        page.append(item)
    return page, 0


def _number(query: Mapping[str, str], field: str) -> int:
    value = query.get(field) or "0"
    if not value.isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax ({field})')
    return int(value)


def _version(query: Mapping[str, str]) -> int | None:
    value = query.get("resourceVersion", "")
    if not value:
        return None
    if not value.isdigit():
        raise Refusal(400, "BadRequest", f'Invalid value: "{value}": resourceVersion must be an integer')
    return int(value)


def _bad_watch(why: str) -> Refusal:
    message = f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: {why}'
    return Refusal(422, "Invalid", message)


def _write_token(token: Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _read_token(given: str) -> Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(given + "=" * (-len(given) % 4)), type=Token)
    except (ValueError, msgspec.MsgspecError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def _gone(token: Token) -> Refusal:
    return expired(_GONE, metadata={"continue": _write_token(Token(-1, token.start))})
