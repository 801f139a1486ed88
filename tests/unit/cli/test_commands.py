"""The commands as typed: help, wrong values, exit codes."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from socket import create_server

import pytest
import yaml
from click.testing import CliRunner, Result

import reconciler.demo
from reconciler.api.json import JsonDict
from reconciler.api.time import Clock
from reconciler.cli import main
from reconciler.demo import LocalCluster, Report
from reconciler.demo.printer import Printer
from reconciler.demo.referee import Verdict
from reconciler.promises import Promise, Tally

FOREIGN = "apiVersion: v1\nkind: Config\nclusters:\n- name: production\n  cluster: {server: https://10.0.0.1}\n"


def called(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"COLUMNS": "110"})


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), ["cluster", "demo", "run"]),
        (("cluster",), ["--port", "--nodes", "--gpus-per-node", "--kubeconfig", "--no-crds", "kubectl get nodes"]),
        (("demo",), ["--keep", "--speed", "--kubeconfig", "NO_COLOR", "exit code is 1"]),
        (("run",), ["--kubeconfig", "OME_KUBECONFIG"]),
    ],
)
def test_help_names_every_flag(command: tuple[str, ...], words: list[str]) -> None:
    result = called(*command, "--help")
    assert result.exit_code == 0
    assert [word for word in words if word not in result.output] == []


@pytest.mark.parametrize("command", ["cluster", "run"])
def test_examples_in_help_keep_their_lines(command: str) -> None:
    output = called(command, "--help").output
    assert any(line.strip().startswith("ome-manager") or ":  " in line for line in output.splitlines())
    assert "\\b" not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cluster", "--port", "70000"), "70000 is not in the range 0<=x<=65535"),
        (("cluster", "--nodes", "-1"), "-1 is not in the range"),
        (("cluster", "--gpus-per-node", "many"), "'many' is not a valid integer"),
        (("cluster", "--crds", "nowhere"), "'nowhere' does not exist"),
        (("cluster", "--kubeconfig", "no/such/folder/file"), "there is no folder no/such/folder"),
        (("demo", "--speed", "0"), "0.0 is not in the range"),
        (("demo", "--speed", "fast"), "'fast' is not a valid float"),
        (("demo", "--keep", "--kubeconfig", "no/such/folder/file"), "there is no folder no/such/folder"),
    ],
)
def test_a_wrong_value_is_wrong_use(arguments: tuple[str, ...], message: str) -> None:
    result = called(*arguments)
    assert (result.exit_code, message in result.output) == (2, True), result.output


def test_crds_and_no_crds_exclude_each_other(tmp_path: Path) -> None:
    result = called("cluster", "--crds", str(tmp_path), "--no-crds")
    assert (result.exit_code, "exclude each other" in result.output) == (2, True)


@pytest.mark.parametrize("command", ["cluster", "demo"])
def test_a_folder_without_crds_names_the_flag(command: str, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("kind: Deployment\n")
    result = called(command, "--crds", str(tmp_path))
    assert result.exit_code == 2
    assert f"no CustomResourceDefinition in {tmp_path}" in result.output
    assert "--crds DIR" in result.output


def test_a_crd_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("kind: [\n")
    result = called("cluster", "--crds", str(tmp_path))
    assert (result.exit_code, "bad.yaml can't be read" in result.output) == (2, True)


@pytest.mark.parametrize(
    "content", [FOREIGN, FOREIGN.replace("production", "embedded"), "not: [yaml", "just words", "clusters: 7"]
)
def test_no_file_of_somebody_else_is_written_over(content: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(content)
    for arguments in (["cluster"], ["demo", "--keep"]):
        result = called(*arguments, "--kubeconfig", str(file))
        assert (result.exit_code, "wasn't written by this program" in result.output) == (2, True), result.output
    assert file.read_text() == content


def test_a_port_in_use_is_a_message_and_a_failure(tmp_path: Path) -> None:
    with closing(create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        result = called("cluster", "--port", str(port), "--no-crds", "--kubeconfig", str(tmp_path / "config"))
    assert result.exit_code == 1
    assert result.output.startswith("ome-manager: ")
    assert str(port) in result.output
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    ("violations", "failure", "code"),
    [((), None, 0), (("1.0 x at y: floor: too bad",), None, 1), ((), "not within 30 s: Ready", 1)],
)
def test_the_demo_fails_by_its_exit_code(
    violations: tuple[str, ...], failure: str | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def played(
        printer: Printer, definitions: Iterable[JsonDict], clock: Clock, *, speed: float, stay: object
    ) -> Report:
        asked.append(speed)
        assert stay is None
        return Report(Verdict(violations, Promise(2, 1), Tally(), 4, 2, 0, 1, {}), failure)

    monkeypatch.setattr(reconciler.demo, "run_demo", played)
    assert called("demo", "--speed", "2.5").exit_code == code
    assert asked == [2.5]


def test_a_kept_demo_can_be_reached_and_leaves_no_kubeconfig_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "my demo.kubeconfig"
    # One of ours that is left from before may be replaced.
    file.write_text("clusters:\n- name: embedded\n  cluster: {server: 'http://127.0.0.1:1'}\n")
    file.chmod(0o644)
    modes: list[int] = []

    class Stopped:
        async def wait(self) -> None:
            modes.append(stat.S_IMODE(file.stat().st_mode))
            document = yaml.safe_load(file.read_bytes())
            assert document["clusters"][0]["cluster"]["server"].startswith("http://127.0.0.1:")

    async def played(printer: Printer, definitions: object, clock: Clock, *, speed: float, stay: object) -> Report:
        assert callable(stay)
        await stay(LocalCluster(clock))
        return Report(Verdict((), Promise(2, 1), Tally(), 4, 2, 0, 1, {}))

    monkeypatch.setattr(reconciler.demo, "run_demo", played)
    monkeypatch.setattr("reconciler.cli.demo.stop_event", Stopped)
    result = called("demo", "--keep", "--kubeconfig", str(file))
    assert result.exit_code == 0, result.output
    assert modes == [0o600]
    assert f"export KUBECONFIG='{file}'" in result.output
    assert not file.exists()
