"""Where credentials come from, and when they are read again."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import certifi
import pytest

from reconciler.client import credentials as subject
from reconciler.client.credentials import ConfiguredCredentials
from reconciler.client.errors import CredentialsError

PLUGIN = """
import json, os, pathlib, sys
count = pathlib.Path(sys.argv[1])
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
status = {"token": f"plugin-{number}"}
if len(sys.argv) > 2:
    status["expirationTimestamp"] = sys.argv[2]
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}))
"""


def kubeconfig(folder: Path, user: dict[str, object], cluster: dict[str, object] | None = None) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1/", **(cluster or {})}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


async def loaded(path: Path | None, **options: Path) -> ConfiguredCredentials:
    found = ConfiguredCredentials(path, **options)
    await found.load()
    return found


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({}, None),
    ],
)
async def test_a_user_of_a_kubeconfig(tmp_path: Path, user: dict[str, object], expected: str | None) -> None:
    found = await loaded(kubeconfig(tmp_path, user))
    assert await found.authorization() == expected
    assert (found.host, found.proxy, found.tls) == ("http://127.0.0.1:1", None, None)


async def test_tls_of_a_kubeconfig(tmp_path: Path) -> None:
    cluster: dict[str, object] = {"server": "https://host", "insecure-skip-tls-verify": True, "tls-server-name": "x"}
    found = await loaded(kubeconfig(tmp_path, {"token": "t"}, {**cluster, "proxy-url": "http://proxy:3128"}))
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE
    assert (found.server_name, found.proxy) == ("x", "http://proxy:3128")


@pytest.mark.parametrize(("but_for", "expected"), [("", "http://proxy:3128"), ("127.0.0.1", None)])
async def test_a_proxy_of_the_environment_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, but_for: str, expected: str | None
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", but_for)
    assert (await loaded(kubeconfig(tmp_path, {"token": "t"}))).proxy == expected


@pytest.mark.parametrize("text", ["", "[]", "not: [yaml", "{}", '{"current-context": "gone", "contexts": []}'])
async def test_an_unusable_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=r"kubeconfig .* can't be used"):
        await loaded(path)


async def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="nowhere can't be used"):
        await loaded(tmp_path / "nowhere")


async def test_outside_a_cluster_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match=r"in-cluster configuration .* give --kubeconfig"):
        await loaded(None)


async def test_item_6_a_service_accounts_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").symlink_to(certifi.where())
    found = await loaded(None, service_account=tmp_path)
    assert found.host == "https://10.0.0.1:443"
    assert await found.authorization() == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert await found.authorization() == "Bearer one", "read at most once a minute"
    monkeypatch.setattr(found, "_due", 0.0)
    assert await found.authorization() == "Bearer two"
    context = found.tls
    (tmp_path / "token").unlink()
    monkeypatch.setattr(found, "_due", 0.0)
    assert await found.authorization() == "Bearer two", "the former token serves until a new one can be read"
    assert found.tls is context


async def test_a_401_reads_at_once_but_not_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    found = await loaded(kubeconfig(tmp_path, {"tokenFile": str(token)}))
    token.write_text("two")
    assert not await found.renew("Bearer one"), "what was read a moment ago isn't read again"
    monkeypatch.setattr(subject, "PLUGIN_REST", 0.0)
    assert all(await asyncio.gather(found.renew("Bearer one"), found.renew("Bearer one")))
    assert await found.authorization() == "Bearer two"


async def test_an_exec_plugin_is_asked_again_before_its_token_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, count = tmp_path / "plugin.py", tmp_path / "count"
    plugin.write_text(PLUGIN)
    end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    found = await loaded(kubeconfig(tmp_path, {"exec": {**run, "args": [str(plugin), str(count), end]}}))
    assert await found.authorization() == "Bearer plugin-1"
    assert found._due is not None
    left = found._due - asyncio.get_running_loop().time()
    assert 3200 < left < 3301
    monkeypatch.setattr(found, "_due", 0.0)
    assert await found.authorization() == "Bearer plugin-2"


async def test_an_exec_plugin_without_an_end_is_asked_after_a_401_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, count = tmp_path / "plugin.py", tmp_path / "count"
    plugin.write_text(PLUGIN)
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    found = await loaded(kubeconfig(tmp_path, {"exec": {**run, "args": [str(plugin), str(count)]}}))
    assert found._due is None
    monkeypatch.setattr(subject, "PLUGIN_REST", 0.0)
    assert await found.renew("Bearer plugin-1")
    assert await found.authorization() == "Bearer plugin-2"
