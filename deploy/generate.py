"""Writes the CustomResourceDefinitions in `deploy/crds/`.

    python -m deploy.generate                     from the committed extract, offline
    python -m deploy.generate OPENAPI             take a new extract first

OPENAPI is the document `/openapi/v3/api/v1` of a Kubernetes API server: a file, or a URL such as that of
`kubectl proxy`. The extract (`podspec-schema.json`) is the part of it that the schemas need, and is committed so that
the definitions can be made, and be checked to be up to date, without a cluster.

A pod's fields appear up to eight times in one definition. They are written once, as YAML anchors, and the later places
refer to them: kubectl and kustomize resolve that, and the files stay readable.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import yaml

from deploy.schema.definitions import definitions
from deploy.schema.pods import pod_schemas
from deploy.schema.words import Json, Schema

HERE: Final = Path(__file__).parent
EXTRACT: Final = HERE / "podspec-schema.json"
CRDS: Final = HERE / "crds"

_HEADER: Final = (
    "# Made by `python -m deploy.generate`; change deploy/schema/ instead. Too large for the annotation that plain\n"
    "# `kubectl apply` keeps (256 KiB): use `kubectl apply --server-side`.\n"
)


def main(arguments: Sequence[str]) -> None:
    """Run the command line described above."""
    if arguments:
        EXTRACT.write_text(render_extract(pod_schemas(read_document(arguments[0]))))
    CRDS.mkdir(exist_ok=True)
    for name, content in render(json.loads(EXTRACT.read_text())).items():
        (CRDS / name).write_text(content)


def read_document(source: str) -> Schema:
    """An OpenAPI document from a file or a URL."""
    if source.startswith(("http://", "https://")):
        with urllib.request.urlopen(source, timeout=60) as answer:  # the scheme was just checked
            return cast("Schema", json.load(answer))
    return cast("Schema", json.loads(Path(source).read_text()))


def render_extract(extract: Schema) -> str:
    """The extract as it is committed: a line a field of the pod."""
    pod = cast("Schema", extract["podSpec"])
    fields = cast("Schema", pod["properties"])
    lines = ",\n".join(f"  {json.dumps(name)}: {_compact(fields[name])}" for name in sorted(fields))
    return f"{{\n{lines}\n}}\n"


def build(fields: dict[str, Schema]) -> dict[str, Schema]:
    """The definitions by file name, as objects in which the pod's fields are shared."""
    container = cast("Schema", fields["containers"]["items"])
    return definitions(fields, container)


def render(fields: dict[str, Schema]) -> dict[str, str]:
    """The definitions by file name, as they are committed."""
    container = cast("dict[str, Json]", cast("Schema", fields["containers"]["items"])["properties"])
    shared = {id(container): "container"} | {id(schema): name for name, schema in fields.items()}
    made = build(fields)
    return {name: _HEADER + _yaml(definition, shared) for name, definition in made.items()}


def _compact(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _yaml(definition: Schema, shared: dict[int, str]) -> str:
    class Dumper(yaml.SafeDumper):
        """Anchors what is shared, and only that, in flow style."""

        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)  # type: ignore[arg-type]
            self.anchored: dict[int, str] = {}

        def ignore_aliases(self, data: object) -> bool:
            return id(data) not in shared

        def represent_data(self, data: object) -> yaml.Node:
            node = super().represent_data(data)
            if id(data) in shared and isinstance(node, yaml.CollectionNode):
                self.anchored[id(node)] = shared[id(data)]
                node.flow_style = True
            return node

        def generate_anchor(self, node: yaml.Node) -> str:
            return self.anchored[id(node)]

    return yaml.dump(definition, Dumper=Dumper, sort_keys=False, width=120, default_flow_style=False)


if __name__ == "__main__":
    main(sys.argv[1:])
