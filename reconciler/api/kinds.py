"""A resource type as the API server names it, tied to the Struct its objects decode to."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)


class Kind(msgspec.Struct, Generic[T_co], frozen=True, eq=False):
    """One resource type; compared by identity, as each is declared once."""

    group: str
    version: str
    plural: str
    name: str
    model: type[T_co]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The request path of the collection, of one object, or of a subresource of it.

        Raises:
            ValueError: a namespace is given for a cluster-scoped type, or a name without one for a namespaced type.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} are cluster-scoped; a namespace ({namespace!r}) can't be given")
        if namespace is None and name is not None and self.namespaced:
            raise ValueError(f"{self.plural} are namespaced; {name!r} needs its namespace")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)
