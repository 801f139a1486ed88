"""The API server: takes a request, gives the answer.

Handling is synchronous and does no I/O; only the stream of a watch is awaited. So a request is one step for everybody
else, as a transaction of etcd is, and under a driven loop the same requests give the same history.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from reconciler.api.json import JsonDict, JsonObject
from reconciler.api.time import Clock, Seconds
from reconciler.client.protocol import PatchType, Request, Response, Transport
from reconciler.embedded import builtin, deletion, discovery, openapi, subresources, writes
from reconciler.embedded.answers import Answer
from reconciler.embedded.builtin_fields import message_of
from reconciler.embedded.core import Author, Core, WriteHook
from reconciler.embedded.definitions import Definitions
from reconciler.embedded.expiry import EventExpiry
from reconciler.embedded.faults import Faults, NoFaults
from reconciler.embedded.gc import GarbageCollector
from reconciler.embedded.patches import json_patch, merge_patch
from reconciler.embedded.reads import Reads, flag, select
from reconciler.embedded.refusals import (
    Refusal,
    about,
    bad_request,
    no_such_method,
    no_such_resource,
    not_found,
    unsupported_media,
)
from reconciler.embedded.requests import (
    Target,
    find_target,
    media_type,
    read_body,
    read_optional_body,
    read_patch,
)
from reconciler.embedded.resources import Registry, Resource
from reconciler.embedded.store import Change
from reconciler.embedded.strategic import strategic_merge
from reconciler.embedded.subresources import Tokens
from reconciler.embedded.transport import LocalTransport
from reconciler.embedded.values import fresh, is_object, text

ADMIN = "kubernetes-admin"
HISTORY = 10_000
"""Changes remembered per type, for watches that come back."""

AT_ONCE = Seconds(0.0)

_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PATCHES = [PatchType.JSON.value, PatchType.MERGE.value, PatchType.STRATEGIC.value]
_SYSTEM = Author("system:apiserver", "create")


class ApiServer:
    """An API server in memory.

    Attributes:
        faults: what goes wrong on the way to the server and back; replace it to make something go wrong.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        random: Random | None = None,
        history: int = HISTORY,
        collect_after: Seconds = AT_ONCE,
        gone_as_status: bool = False,
    ) -> None:
        """Start with the namespaces every cluster has.

        Args:
            clock: tells the time of stamps; waiting is the event loop's.
            random: gives uids, name suffixes and tokens. A seeded one makes a run repeatable.
            history: changes remembered per type.
            gone_as_status: answer a watch from before the history with status 410, as some servers and proxies do,
                instead of with an ERROR event in the stream.
            collect_after: how long after a write the owners' dependents follow; 0 means with it.
        """
        self.faults: Faults = NoFaults()
        self._core = Core(clock, random or Random(), Registry(builtin.BUILT_IN), history)
        self._reads = Reads(self._core, gone_as_status=gone_as_status)
        self._tokens = Tokens(self._core)
        self._definitions = Definitions(self._core)
        self._core.reactions.append(self._accounts)
        self._collector = GarbageCollector(self._core, collect_after)
        self._expiry = EventExpiry(self._core)
        namespaces = self._core.registry.find("", "v1", "namespaces")
        for name in _FIRST_NAMESPACES:
            writes.create(self._core, _SYSTEM, namespaces, "", {"metadata": {"name": name}}, writes.Options())
        self._core.settle()

    @property
    def clock(self) -> Clock:
        """The clock the server was given."""
        return self._core.clock

    @property
    def resource_version(self) -> int:
        """The version of the latest write."""
        return self._core.version

    @property
    def watches(self) -> int:
        """Open watches."""
        return len(self._reads.streams)

    def transport(self, user: str = ADMIN) -> Transport:
        """A way in for one user, in process."""
        return LocalTransport(self.serve, user)

    def add_write_hook(self, hook: WriteHook) -> Callable[[], None]:
        """Call the hook right after every write, in order; the answer takes it off again."""
        self._core.hooks.append(hook)
        return lambda: self._core.hooks.remove(hook)

    def user_of(self, token: str) -> str | None:
        """Whose token it is; None for a token the server did not give, or that has expired."""
        return self._tokens.user(token)

    def compact(self, group: str | None = None, plural: str | None = None) -> None:
        """Forget the history of one type, or of all: whoever comes back to it gets 410."""
        self._core.compact(None if plural is None else (group or "", plural))

    def end_watches(self) -> None:
        """End all watches cleanly, as a server does that is shut down."""
        for stream in list(self._reads.streams):
            stream.end()

    async def serve(self, request: Request, user: str) -> Response:
        """Answer a request, faults included.

        Raises:
            Dropped: there is no answer.
        """
        answer = await self.faults.before(user, request)
        if answer is None:
            answer = self.handle(request, user)
        return await self.faults.after(user, request, answer)

    def handle(self, request: Request, user: str = ADMIN) -> Response:
        """Answer a request."""
        try:
            answer = self._handle(request, user)
        except Refusal as refusal:
            answer = Answer.refusing(refusal)
        finally:
            self._core.settle()
        return answer

    def _handle(self, request: Request, user: str) -> Response:
        path = request.path.rstrip("/") or "/"
        plain = discovery.plain_answer(path)
        if plain is not None:
            return plain
        if path.startswith("/openapi/"):
            return openapi.answer(path, self._core.registry, self._definitions.schemas, request.headers)
        if path.startswith(("/api", "/apis")) and discovery.is_discovery(path):
            return discovery.answer(path, self._core.registry)
        if not path.startswith(("/api/", "/apis/")):
            raise no_such_resource()
        target = find_target(self._core.registry, path)
        query = dict(request.query)
        if target.resource.storage == builtin.EVENTS.storage:
            self._expiry.sweep()
        if target.subresource and target.subresource != "status":
            return self._on_subresource(request, user, target, query)
        if target.subresource and not target.resource.status:
            raise no_such_resource()
        if target.name:
            return self._on_object(request, user, target, query)
        return self._on_collection(request, user, target, query)

    def _on_collection(self, request: Request, user: str, target: Target, query: dict[str, str]) -> Response:
        resource, namespace = target.resource, target.namespace
        match request.method:
            case "GET" if flag(query, "watch"):
                return self._reads.watch(resource, namespace, query, request.headers)
            case "GET":
                return self._reads.list(resource, namespace, query, request.headers)
            case "POST":
                if resource.namespaced and not namespace:
                    raise no_such_method()
                body = read_body(request)
                author = Author(user, "create", dry_run=_dry_run(query))
                written = writes.create(self._core, author, resource, namespace, body, _options(query))
                return self._shown(request, target, written)
            case "DELETE":
                return self._delete_collection(request, user, target, query)
            case _:
                raise no_such_method()

    def _on_object(self, request: Request, user: str, target: Target, query: dict[str, str]) -> Response:
        resource, namespace, name = target.resource, target.namespace, target.name
        match request.method:
            case "GET":
                return self._reads.get(resource, namespace, name, request.headers)
            case "PUT":
                author = Author(user, "update", target.subresource, _dry_run(query))
                return self._shown(request, target, self._update(request, author, target, _options(query)))
            case "PATCH":
                author = Author(user, "patch", target.subresource, _dry_run(query))
                build = _patcher(request, resource)
                written = writes.replace(
                    self._core, author, resource, namespace, name, build, _options(query), whole=False
                )
                return self._shown(request, target, written)
            case "DELETE" if not target.subresource:
                options = subresources.options_of(read_optional_body(request), query)
                author = Author(user, "delete", dry_run=options.dry_run)
                deleted = deletion.delete(self._core, author, resource, namespace, name, options)
                if deleted.gone and not resource.returns_deleted:
                    return Answer.of(200, _success(resource, deleted.stored.name, deleted.stored.uid))
                return self._reads.shown(200, resource, deleted.stored, request.headers)
            case _:
                raise no_such_method()

    def _update(self, request: Request, author: Author, target: Target, options: writes.Options) -> writes.Written:
        resource, namespace, name = target.resource, target.namespace, target.name
        body = read_body(request)
        missing = self._core.get(resource, namespace, name) is None
        if missing and resource.create_on_update and not target.subresource:
            if text(body, "metadata", "resourceVersion"):
                raise not_found(resource.group, resource.plural, name)
            return writes.create(self._core, author, resource, namespace, body, options)
        return writes.replace(self._core, author, resource, namespace, name, lambda _: body, options)

    def _delete_collection(self, request: Request, user: str, target: Target, query: dict[str, str]) -> Response:
        resource = target.resource
        if "deletecollection" not in resource.verbs:
            raise no_such_method()
        options = subresources.options_of(read_optional_body(request), query)
        author = Author(user, "delete", dry_run=options.dry_run)
        selector = select(resource, query)
        for stored in list(self._core.collection(resource.storage).scan(target.namespace)):
            if selector.matches(stored.data):
                deletion.delete(self._core, author, resource, stored.namespace, stored.name, options)
        return Answer.of(200, _success(resource, "", ""))

    def _on_subresource(self, request: Request, user: str, target: Target, query: dict[str, str]) -> Response:
        resource, namespace, name = target.resource, target.namespace, target.name
        place = (resource.group, resource.plural, target.subresource)
        if target.subresource == "scale" and resource.scale is not None:
            return self._on_scale(request, user, target, query)
        author = Author(user, "create", target.subresource, _dry_run(query))
        if request.method == "POST":
            body = read_body(request)
            match place:
                case ("", "pods", "binding"):
                    subresources.bind(self._core, author, resource, namespace, name, body)
                    return Answer.of(201, _success(None, "", ""))
                case ("", "pods", "eviction"):
                    subresources.evict(self._core, author, resource, namespace, name, body)
                    return Answer.of(201, _success(None, "", ""))
                case ("", "serviceaccounts", "token"):
                    return Answer.of(201, self._tokens.request(resource, namespace, name, body))
        raise no_such_resource()

    def _on_scale(self, request: Request, user: str, target: Target, query: dict[str, str]) -> Response:
        resource, namespace, name = target.resource, target.namespace, target.name
        if request.method == "GET":
            stored = self._core.get(resource, namespace, name)
            if stored is None:
                raise not_found(resource.group, resource.plural, name)
            return Answer.of(200, subresources.read_scale(resource, stored))
        if request.method == "PUT":
            body = read_body(request)
            author = Author(user, "update", "scale", _dry_run(query))
            build: writes.Build = lambda _: body  # noqa: E731  # a constant function is clearer inline than named
        elif request.method == "PATCH":
            author = Author(user, "patch", "scale", _dry_run(query))
            build = _patcher(request, None)
        else:
            raise no_such_method()
        return Answer.of(200, subresources.write_scale(self._core, author, resource, namespace, name, build))

    def _shown(self, request: Request, target: Target, written: writes.Written) -> Response:
        answer = self._reads.shown(201 if written.created else 200, target.resource, written.stored, request.headers)
        if written.warnings:
            quoted = (warning.replace('"', '\\"') for warning in written.warnings)
            answer.headers["warning"] = ", ".join(f'299 - "{warning}"' for warning in quoted)
        return answer

    def _accounts(self, resource: Resource, change: Change) -> None:
        """Every namespace has a service account `default`, as the controllers of a cluster see to it."""
        if resource.storage != ("", "namespaces") or change.before is not None or change.after is None:
            return
        accounts = self._core.registry.find("", "v1", "serviceaccounts")
        author = Author("system:serviceaccount:kube-system:service-account-controller", "create")
        body: JsonDict = {"metadata": {"name": "default"}}
        writes.create(self._core, author, accounts, change.after.name, body, writes.Options())


def _options(query: dict[str, str]) -> writes.Options:
    validation = query.get("fieldValidation", "")
    if validation not in ("", "Strict", "Warn", "Ignore"):
        message = f'fieldValidation: Unsupported value: "{validation}": supported values: "Ignore", "Strict", "Warn"'
        raise Refusal(422, "Invalid", message)
    return writes.Options(strict=validation == "Strict", warn=validation in ("", "Warn"))


def _dry_run(query: dict[str, str]) -> bool:
    value = query.get("dryRun", "")
    if value not in ("", "All"):
        raise Refusal(422, "Invalid", f'dryRun: Unsupported value: "{value}": supported values: "All"')
    return value == "All"


def _patcher(request: Request, resource: Resource | None) -> writes.Build:
    """What a patch request does to an object (of a type, or to a Scale when there is none)."""
    kind = media_type(request.headers)
    custom = resource is not None and resource.custom
    if kind not in _PATCHES or (custom and kind == PatchType.STRATEGIC.value):
        raise unsupported_media(kind, _PATCHES[:2] if custom else _PATCHES)
    patch = read_patch(request)
    message = "autoscaling.v1.Scale" if resource is None else message_of(resource.api_version, resource.kind)

    def build(old: JsonObject) -> JsonDict:
        shown = resource.outward(old) if resource is not None and resource.outward is not None else dict(old)
        if resource is not None:
            shown = {**shown, "apiVersion": resource.api_version, "kind": resource.kind}
        if kind == PatchType.JSON.value:
            return json_patch(shown, patch)
        if not is_object(patch):
            raise bad_request("json: cannot unmarshal the patch into an object")
        if kind == PatchType.MERGE.value:
            merged = merge_patch(shown, patch)
            assert is_object(merged)
            return fresh(merged)
        return fresh(strategic_merge(shown, patch, message))

    return build


def _success(resource: Resource | None, name: str, uid: str) -> JsonDict:
    body: JsonDict = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if resource is not None:
        body["details"] = about(resource.group, resource.plural, name, uid=uid)
    return body
