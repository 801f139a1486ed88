"""What the four programs are started with: options in, files and command lines out.

Everything binds to the loopback address. Users are static tokens, each with a name of its own, because the audit log
tells them apart by name: what a test writes through kubectl must not be mixed up with what the harness or a controller
writes.
"""

import base64
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.control_plane.audit import POLICY
from tests.control_plane.build import Programs
from tests.control_plane.processes import free_ports

ADMIN: Final = "admin"
"""Whose rights tests have by default."""
HARNESS: Final = "harness"
"""Who writes nodes and their heartbeats."""
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
MASTERS: Final = "system:masters"

_HOST: Final = "127.0.0.1"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How one control plane differs from the usual one."""

    apiserver_flags: tuple[str, ...] = ()
    """Come last, so they win over the harness's own."""
    controller_manager_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()
    etcd_flags: tuple[str, ...] = ()
    max_requests_inflight: int | None = None
    """At most so many reads, and as many writes, at a time; more get 429 with Retry-After. Users in `system:masters`,
    which all of the harness's own are, are exempt. Fair queuing is off then, since it makes requests wait instead."""
    watch_cache: bool = True
    """False: lists and watches go to etcd, so that a compaction is felt by the next request."""
    controller_manager: bool = True
    """False: no controllers, so no default ServiceAccounts, no garbage collection, nodes keep their not-ready taint."""
    scheduler: bool = True
    users: Mapping[str, tuple[str, ...]] = {}
    """More users with a static token: name to groups."""
    ready_within: float = 120.0
    """Seconds that each program gets to become ready."""
    programs: Programs | None = None
    """None: the cache's, built if need be."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """One port a listener; they stay the same when a program is started again."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int

    @classmethod
    def free(cls) -> "Ports":
        """Ports nobody listens on at the moment."""
        etcd, etcd_peer, apiserver, controller_manager, scheduler = free_ports(5)
        return cls(
            etcd=etcd,
            etcd_peer=etcd_peer,
            apiserver=apiserver,
            controller_manager=controller_manager,
            scheduler=scheduler,
        )


class Layout:
    """The folder of one control plane, its users, its URLs and its command lines."""

    def __init__(self, directory: Path, options: Options, programs: Programs) -> None:
        self.directory = directory.absolute()
        self.programs = programs
        self.audit_log = self.directory / "audit.log"
        self.ca = self.directory / "apiserver/apiserver.crt"
        self.etcd_data = self.directory / "etcd"
        self._options = options
        self._ports = Ports.free()
        self._groups: dict[str, tuple[str, ...]] = {
            ADMIN: (MASTERS,),
            HARNESS: (MASTERS,),
            CONTROLLER_MANAGER: (MASTERS,),
            SCHEDULER: (MASTERS,),
            **options.users,
        }
        self.tokens: Mapping[str, str] = {user: secrets.token_hex(16) for user in self._groups}

    @property
    def url(self) -> str:
        """Where the API server is."""
        return f"https://{_HOST}:{self._ports.apiserver}"

    @property
    def etcd_url(self) -> str:
        """Where etcd is, with its JSON gateway."""
        return f"http://{_HOST}:{self._ports.etcd}"

    @property
    def probes(self) -> Mapping[str, str]:
        """Program name to the URL that answers 200 once the program does its work."""
        return {
            "etcd": f"{self.etcd_url}/readyz",
            "kube-apiserver": f"{self.url}/readyz",
            "kube-controller-manager": f"https://{_HOST}:{self._ports.controller_manager}/healthz",
            "kube-scheduler": f"https://{_HOST}:{self._ports.scheduler}/healthz",
        }

    def log(self, program: str) -> Path:
        """What the program printed."""
        return self.directory / f"{program}.log"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig file of a user with a static token."""
        return self.directory / "users" / f"{user.replace(':', '-')}.kubeconfig"

    def write(self) -> None:
        """Lays the folder. Blocks on files."""
        (self.directory / "users").mkdir(parents=True, exist_ok=True)
        rows = [
            f'{self.tokens[user]},{user},{number},"{",".join(groups)}"\n'
            for number, (user, groups) in enumerate(self._groups.items())
        ]
        self._file("tokens.csv").write_text("".join(rows))
        self._file("audit-policy.yaml").write_bytes(msgspec.json.encode(POLICY))
        self._file("service-account.key").write_text(_new_private_key())
        self.audit_log.touch()
        for user, token in self.tokens.items():
            self.write_kubeconfig(self.kubeconfig(user), user, token)

    def write_kubeconfig(self, path: Path, user: str, token: str, namespace: str = "default") -> None:
        """Writes a kubeconfig (as JSON, which is YAML) for a user with a token. Blocks on the file."""
        name = "control-plane"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}],
            "current-context": name,
        }
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content)))

    def etcd(self) -> list[str]:
        """etcd, without the fsync that a temporary folder does not need."""
        peer = f"http://{_HOST}:{self._ports.etcd_peer}"
        return [
            str(self.programs.etcd),
            "--name=default",
            f"--data-dir={self.etcd_data}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            *self._options.etcd_flags,
        ]

    def apiserver(self) -> list[str]:
        """kube-apiserver; it makes its own certificate in `--cert-dir` and finds it there when started again."""
        key = self._file("service-account.key")
        limit = self._options.max_requests_inflight
        return [
            str(self.programs.kube_apiserver),
            f"--etcd-servers={self.etcd_url}",
            f"--secure-port={self._ports.apiserver}",
            f"--bind-address={_HOST}",
            f"--advertise-address={_HOST}",
            f"--cert-dir={self.ca.parent}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={key}",
            f"--service-account-key-file={key}",
            f"--token-auth-file={self._file('tokens.csv')}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            f"--watch-cache={str(self._options.watch_cache).lower()}",
            f"--audit-policy-file={self._file('audit-policy.yaml')}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=100000",  # MB; never rotated, so that an offset keeps its meaning
            *([] if limit is None else _at_most(limit)),
            *self._options.apiserver_flags,
        ]

    def controller_manager(self) -> list[str]:
        """All default controllers but the one that hands out pod networks, with room to work fast."""
        return [
            str(self.programs.kube_controller_manager),
            f"--kubeconfig={self.kubeconfig(CONTROLLER_MANAGER)}",
            f"--bind-address={_HOST}",
            f"--secure-port={self._ports.controller_manager}",
            f"--cert-dir={self.directory / 'controller-manager'}",
            "--leader-elect=false",
            f"--service-account-private-key-file={self._file('service-account.key')}",
            f"--root-ca-file={self.ca}",
            "--controllers=*,-nodeipam",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *self._options.controller_manager_flags,
        ]

    def scheduler(self) -> list[str]:
        """kube-scheduler with its default profile."""
        return [
            str(self.programs.kube_scheduler),
            f"--kubeconfig={self.kubeconfig(SCHEDULER)}",
            f"--bind-address={_HOST}",
            f"--secure-port={self._ports.scheduler}",
            f"--cert-dir={self.directory / 'scheduler'}",
            "--leader-elect=false",
            *self._options.scheduler_flags,
        ]

    def _file(self, name: str) -> Path:
        return self.directory / name


def _at_most(limit: int) -> list[str]:
    return [
        "--enable-priority-and-fairness=false",
        f"--max-requests-inflight={limit}",
        f"--max-mutating-requests-inflight={limit}",
    ]


def _new_private_key() -> str:
    """A fresh P-256 key as PEM: 32 random bytes in the fixed frame of an RFC 5915 `ECPrivateKey`.

    The public half is optional there and the reader computes it, so no cryptography library is needed for this.
    """
    # The order of the curve begins with 32 one bits: a number below 2**255 is in range.
    scalar = (secrets.randbits(255) | 1).to_bytes(32, "big")
    frame = bytes.fromhex("30310201010420") + scalar + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(frame).decode()}\n-----END EC PRIVATE KEY-----\n"
