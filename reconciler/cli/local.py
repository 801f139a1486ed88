"""What `cluster` and `demo` share: the CRDs' folder, and a kubeconfig that replaces no other and is gone at the end.

The embedded cluster is imported where it is used: the manager's own command never loads it.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click
import yaml

from reconciler.api.json import JsonDict, JsonValue, is_object, object_at, objects_at, text_at

if TYPE_CHECKING:
    from reconciler.demo import LocalCluster
    from reconciler.embedded import Front

P = ParamSpec("P")
R = TypeVar("R")

_FLAG = "--kubeconfig"


def crds_option(command: Callable[P, R]) -> Callable[P, R]:
    """The flag `--crds`."""
    return click.option(
        "--crds",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder of the manager's CRDs; deploy/crds of the sources by default.",
    )(command)


def kubeconfig_option(default: str, words: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The flag `--kubeconfig`, of a file to write."""
    return click.option(
        _FLAG,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        default=default,
        show_default=True,
        help=words,
    )


def definitions(folder: Path | None) -> tuple[JsonDict, ...]:
    """The CRDs.

    Raises:
        UsageError: they aren't there.
    """
    from reconciler.demo import DefinitionsMissing, find_definitions

    try:
        return find_definitions(folder)
    except DefinitionsMissing as error:
        raise click.UsageError(str(error)) from error


@asynccontextmanager
async def on_loopback(cluster: LocalCluster, kubeconfig: Path, port: int = 0) -> AsyncIterator[Front]:
    """Serve a cluster on 127.0.0.1, and write a kubeconfig to reach it by.

    Everybody on this machine is let in: `kubectl` sends no token over plain HTTP.
    """
    from reconciler.embedded import serve

    async with serve(cluster.server, port=port) as front:
        with _written(front, kubeconfig):
            yield front


def export_line(kubeconfig: Path) -> str:
    """The shell command that makes `kubectl` use the file."""
    return f"export KUBECONFIG={quoted(kubeconfig)}"


def quoted(path: Path) -> str:
    """The whole path as a shell takes it."""
    return shlex.quote(str(path.absolute()))


def claim(path: Path) -> None:
    """Make sure that writing this kubeconfig destroys nothing: no other cluster's, and no other file.

    Raises:
        BadParameter: it would, or there is no such folder.
    """
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}", param_hint=_FLAG)
    if path.exists() and not _leads_to_embedded(path):
        words = f"{path} is there and wasn't written by this program; name another file, or remove it"
        raise click.BadParameter(words, param_hint=_FLAG)


@contextmanager
def _written(front: Front, path: Path) -> Iterator[None]:
    """Keep the kubeconfig there; at the end it is removed unless somebody else has written to it."""
    # A file of ours from before may be readable by others; a new one never is.
    path.unlink(missing_ok=True)
    front.write_kubeconfig(path)
    content = path.read_bytes()
    try:
        yield
    finally:
        if path.is_file() and path.read_bytes() == content:
            path.unlink()


def _leads_to_embedded(path: Path) -> bool:
    from reconciler.embedded.http import CONTEXT

    try:
        document: JsonValue = yaml.safe_load(path.read_bytes())
        if not is_object(document):
            return False
        clusters = objects_at(document, "clusters")
        servers = [text_at(object_at(item, "cluster"), "server") for item in clusters]
        names = [text_at(item, "name") for item in clusters]
        return names == [CONTEXT] and servers[0].startswith("http://127.0.0.1:")
    except (OSError, ValueError, yaml.YAMLError):
        return False  # whatever it is, it isn't ours
