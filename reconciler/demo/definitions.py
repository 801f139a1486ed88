"""Where the CustomResourceDefinitions are: with the manifests an operator applies, not in the package.

They have one home, `deploy/crds`, beside the package in a checkout (an editable install runs from there). Anywhere
else the user names the folder.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from reconciler.api.json import JsonDict, is_object

_CHECKOUT = Path(__file__).parents[2] / "deploy" / "crds"
_KIND = "CustomResourceDefinition"


class DefinitionsMissing(Exception):
    """The folder holds no definitions; the message says what to do."""


def find_definitions(folder: Path | None = None) -> tuple[JsonDict, ...]:
    """The definitions in a folder, in the order of its file names.

    Args:
        folder: where to look; None for `deploy/crds` of the checkout this package runs from.

    Raises:
        DefinitionsMissing: there are none, or a file can't be read as YAML.
    """
    place = folder or _CHECKOUT
    found: list[JsonDict] = []
    for path in sorted(place.glob("*.yaml")) if place.is_dir() else ():
        try:
            # The C loader: the pod schemas make these files large, and the plain one takes seconds over them.
            documents = list(yaml.load_all(path.read_bytes(), yaml.CSafeLoader))
        except (OSError, yaml.YAMLError) as error:
            raise DefinitionsMissing(f"{path} can't be read: {error}") from error
        found += [dict(item) for item in documents if is_object(item) and item.get("kind") == _KIND]
    if not found:
        advice = "name the folder of the manager's CRDs with --crds DIR; in the sources it is deploy/crds"
        raise DefinitionsMissing(f"no {_KIND} in {place}: {advice}")
    return tuple(found)
