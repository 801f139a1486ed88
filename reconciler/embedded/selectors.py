"""Label and field selectors as they come in a query.

A selector is parsed once per request and then asked about every object, so a parsed one is a tuple of small tests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from reconciler.api.json import JsonObject, JsonValue
from reconciler.embedded.refusals import bad_request
from reconciler.embedded.values import child, look, objects, text, texts

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*(?P<absent_key>{_KEY})"
    rf"|(?P<set_key>{_KEY})\s+(?P<set_op>in|notin)\s*\((?P<values>[^()]*)\)"
    rf"|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=|>|<)\s*(?P<value>[^,()\s=!<>]*))?)\s*(?:,|$)"
)


class Requirement(msgspec.Struct, frozen=True):
    """One test of one label or field."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, found: str | None) -> bool:
        """Whether it holds for the value found (None when there is none)."""
        match self.operator:
            case "exists":
                return found is not None
            case "absent":
                return found is None
            case "in":
                return found is not None and found in self.values
            case "notin":
                return found is None or found not in self.values
            case _:
                return self._compares(found)

    def _compares(self, found: str | None) -> bool:
        try:
            value, bound = int(found or ""), int(self.values[0])
        except ValueError:
            return False
        return value > bound if self.operator == ">" else value < bound


class Selector(msgspec.Struct, frozen=True):
    """All tests of a list or a watch; an empty one selects everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, body: JsonObject) -> bool:
        """Whether the object is selected."""
        if self.labels:
            labels = child(body, "metadata", "labels")
            for requirement in self.labels:
                value = labels.get(requirement.key)
                if not requirement.holds(value if isinstance(value, str) else None):
                    return False
        return all(item.holds(_field_text(look(body, *item.key.split(".")))) for item in self.fields)

    @property
    def name(self) -> str | None:
        """The one name that can match, if the selector asks for one."""
        for item in self.fields:
            if item.key == "metadata.name" and item.operator == "in":
                return item.values[0]
        return None


EVERYTHING = Selector()

_ALL_TYPES = frozenset({"metadata.name", "metadata.namespace"})
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

SELECTABLE: Mapping[tuple[str, str], frozenset[str]] = {
    ("", "pods"): frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        }
    ),
    ("", "events"): frozenset(
        {*(f"involvedObject.{part}" for part in _INVOLVED), "reason", "reportingComponent", "source", "type"}
    ),
    ("", "nodes"): frozenset({"spec.unschedulable"}),
    ("", "namespaces"): frozenset({"status.phase", "name"}),
    ("", "secrets"): frozenset({"type"}),
    ("", "services"): frozenset({"spec.clusterIP", "spec.type"}),
    ("apps", "replicasets"): frozenset({"status.replicas"}),
}
"""Fields that can be selected by, per type, apart from name and namespace."""

_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
_STORED_AS = {"source": "source.component", "name": "metadata.name"}


def parse_labels(query: str) -> tuple[Requirement, ...]:
    """Read a label selector.

    Raises:
        Refusal: 400, it can't be read.
    """
    found: list[Requirement] = []
    position = 0
    while position < len(query):
        match = _REQUIREMENT.match(query, position)
        if match is None:
            raise bad_request(f"unable to parse requirement: found {query[position:]!r} in {query!r}")
        position = match.end()
        if match["absent"]:
            found.append(Requirement(match["absent_key"], "absent"))
        elif match["set_op"]:
            values = tuple(value.strip() for value in match["values"].split(","))
            found.append(Requirement(match["set_key"], match["set_op"], values))
        elif match["op"] is None:
            found.append(Requirement(match["key"], "exists"))
        else:
            operator = {"=": "in", "==": "in", "!=": "notin"}.get(match["op"], match["op"])
            found.append(Requirement(match["key"], operator, (match["value"],)))
    return tuple(found)


def parse_fields(query: str, group: str, plural: str, extra: frozenset[str] = frozenset()) -> tuple[Requirement, ...]:
    """Read a field selector of a type; `extra` are the selectable fields a custom type declares.

    Raises:
        Refusal: 400, it can't be read or names a field that can't be selected by.
    """
    allowed = _ALL_TYPES | SELECTABLE.get((group, plural), frozenset()) | extra
    found: list[Requirement] = []
    for part in filter(None, re.split(r"(?<!\\),", query)):
        match = re.fullmatch(r"([^=!]+?)(==|=|!=)(.*)", part.strip(), re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: {query!r}; can't understand {part!r}")
        field, operator, value = match.groups()
        if field not in allowed:
            raise bad_request(f"field label not supported: {field}")
        value = re.sub(r"\\(.)", r"\1", value)
        found.append(Requirement(_STORED_AS.get(field, field), "notin" if operator == "!=" else "in", (value,)))
    return tuple(found)


def matches_object(selector: JsonObject, labels: JsonObject) -> bool:
    """Whether a `LabelSelector` object selects these labels; an empty one selects everything.

    One that can't be read selects nothing.
    """
    for key, value in child(selector, "matchLabels").items():
        if labels.get(key) != value:
            return False
    for item in objects(selector, "matchExpressions"):
        operator = _OPERATORS.get(text(item, "operator"))
        if operator is None:
            return False
        value = labels.get(text(item, "key"))
        requirement = Requirement(text(item, "key"), operator, tuple(texts(item, "values")))
        if not requirement.holds(value if isinstance(value, str) else None):
            return False
    return True


def _field_text(value: JsonValue) -> str:
    """A field as selectors compare it; one that is not set is the empty text."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case _:
            return str(value)
