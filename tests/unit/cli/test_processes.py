"""The commands as processes of their own, in real time: they start, answer, and end when told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer
from urllib.request import urlopen

import pytest
import yaml

PATIENCE = 20.0
"""It takes one second; a busy machine gets more."""


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_cluster_starts_answers_and_ends_on_a_signal(stop: signal.Signals, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "ome-cluster.kubeconfig"
    command = [sys.executable, "-m", "reconciler", "cluster", "--nodes", "2", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        late = Timer(PATIENCE, process.kill)
        late.start()
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            first = process.stdout.readline()  # it is printed when all is up
            assert kubeconfig.exists(), process.communicate()
            url = yaml.safe_load(kubeconfig.read_bytes())["clusters"][0]["cluster"]["server"]
            with urlopen(f"{url}/readyz", timeout=PATIENCE) as answer:
                assert answer.read() == b"ok"
            with urlopen(f"{url}/apis/ome.io/v1beta1/inferenceservices", timeout=PATIENCE) as answer:
                assert answer.status == 200
            process.send_signal(stop)
            output, errors = process.stdout.read(), process.stderr.read()
            process.wait()
        finally:
            late.cancel()
            process.kill()
    assert (process.returncode, errors) == (0, "")
    assert first == f"A cluster of 2 nodes with 8 GPUs each runs at {url}, in memory only.\n"
    assert f"export KUBECONFIG={kubeconfig}" in output
    assert f"ome-manager run --kubeconfig {kubeconfig}" in output
    assert not kubeconfig.exists()


def test_the_demo_ends_quietly_when_nobody_reads_it_any_more() -> None:
    command = [sys.executable, "-m", "reconciler", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        late = Timer(PATIENCE, process.kill)
        late.start()
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("An embedded cluster")
        process.stdout.close()
        errors = process.stderr.read()
        process.wait()
        late.cancel()
    assert (process.returncode, errors) == (1, "")
