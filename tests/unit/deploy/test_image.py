"""What can be said of the image and the manifests without a container engine and without a cluster."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
STEPS = [
    line.split(maxsplit=1)
    for line in (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    if line and not line.startswith("#")
]


def steps(name: str) -> list[str]:
    return [rest for step, rest in STEPS if step == name]


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / name).read_text()))


def test_whatever_is_copied_from_the_tree_exists_and_is_not_ignored() -> None:
    copied = [rest.split()[0] for rest in steps("COPY") if not rest.startswith("--from")]
    assert copied == ["requirements-run.lock", "reconciler"]
    assert all((ROOT / source).exists() for source in copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert [f"!{source}" in ignored for source in copied] == [True, True]


def test_the_image_runs_the_manager_as_nobody_and_writes_no_byte_code() -> None:
    assert steps("USER") == ["65532:65532"]
    assert steps("ENTRYPOINT") == ['["python", "-m", "reconciler"]']
    assert steps("CMD") == ['["run"]']
    assert "PYTHONDONTWRITEBYTECODE=1" in steps("ENV")[0]


def test_the_image_names_no_registry() -> None:
    assert {rest.split()[0] for rest in steps("FROM")} == {"python:3.11-slim"}
    assert "://" not in (ROOT / "Containerfile").read_text() + (ROOT / "requirements-run.lock").read_text()


def test_the_image_has_what_the_project_needs_as_it_was_tested_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=!~\[]", text)[0] for text in project["dependencies"]}
    tools = {re.split(r"[<>=!~\[]", text)[0] for text in project["optional-dependencies"]["dev"]}
    run, tested = pins("requirements-run.lock"), pins("requirements.lock")
    assert needed <= run.keys()
    assert not tools & run.keys()
    assert run == {name: tested[name] for name in run}


def test_the_deployment_runs_that_image_under_its_account() -> None:
    (deployment,) = manifests("deployment.yaml")
    account = next(item for item in manifests("rbac.yaml") if item["kind"] == "ServiceAccount")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    assert f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}" == steps("USER")[0]
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_kustomization_names_every_manifest() -> None:
    (kustomization,) = manifests("kustomization.yaml")
    there = {str(path.relative_to(ROOT / "deploy")) for path in (ROOT / "deploy").glob("*.yaml")}
    there |= {str(path.relative_to(ROOT / "deploy")) for path in (ROOT / "deploy/crds").glob("*.yaml")}
    assert set(kustomization["resources"]) == there - {"kustomization.yaml"}
