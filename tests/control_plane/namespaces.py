"""Namespaces that appear ready for pods and leave nothing behind.

Left to itself, Kubernetes takes at least five seconds to delete a namespace, and for ever if pods are bound to nodes
that have no kubelet. A test needs less and more: no pod may go on holding GPUs, and no object of one test may be there
for the manager of the next. So the namespace is marked for deletion (from then on nothing can be created in it), its
contents are removed here, pods by force, and the empty shell is left to the namespace controller.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from tests.control_plane.api import Api
from tests.control_plane.processes import until

_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_NOW: Final = {"gracePeriodSeconds": "0", "propagationPolicy": "Background"}


async def create(
    api: Api, token: str, name: str, *, labels: Mapping[str, str], default_account_within: float | None
) -> None:
    """Creates a namespace and waits for its default ServiceAccount, without which no pod can be created.

    Raises:
        ApiError: the API server refused.
        TimeoutError: no ServiceAccount appeared.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels)}}
    await api.request("POST", "/api/v1/namespaces", namespace, token=token)
    if default_account_within is None:
        return

    async def has_account() -> bool:
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        return (await api.request("GET", path, token=token, check=False)).status == 200

    await until(has_account, what=f"namespace {name} has its default ServiceAccount", within=default_account_within)


async def clear(api: Api, token: str, name: str, *, within: float) -> None:
    """Deletes a namespace, if there is such a one, with all that is in it; returns once it is empty.

    Raises:
        ApiError: the API server refused.
        TimeoutError: something stays; the message names it with its finalizers.
    """
    deleted = await api.request("DELETE", f"/api/v1/namespaces/{name}", token=token, check=False)
    if deleted.status == 404:
        return
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    left = {path: ["not looked at yet"] for path in await _namespaced(api, token, name)}
    while left := {path: found for path in left if (found := await _delete_all(api, token, path))}:
        if loop.time() >= deadline:
            raise TimeoutError(f"namespace {name} not empty within {within:g} s; left are {[*left.values()]}")
        await asyncio.sleep(0.05)


async def _namespaced(api: Api, token: str, name: str) -> list[str]:
    """The path in one namespace of every kind that lives in namespaces, in one version each."""
    found: dict[tuple[str, str], str] = {}
    for root in ("/api", "/apis"):
        answer = await api.request("GET", root, token=token, headers={"Accept": _DISCOVERY})
        for group in answer.json()["items"]:
            group_name = group["metadata"].get("name", "")
            for version in group["versions"]:
                prefix = "/".join(part for part in (root, group_name, version["version"]) if part)
                for resource in version.get("resources", []):
                    if resource["scope"] == "Namespaced" and {"list", "deletecollection"} <= set(resource["verbs"]):
                        path = f"{prefix}/namespaces/{name}/{resource['resource']}"
                        found.setdefault((group_name, resource["resource"]), path)
    return list(found.values())


async def _delete_all(api: Api, token: str, path: str) -> list[str]:
    """Asks for the deletion of all that is at a path, and says what was there."""
    answer = await api.request("GET", path, token=token, headers={"Accept": _METADATA_ONLY}, check=False)
    if answer.status == 404:  # a kind whose definition a test has just removed
        return []
    if answer.status != 200:  # a kind whose storage is only being opened: what is in it can't be said yet
        return [f"{path} answers {answer.status}"]
    items = answer.json()["items"]
    if not items:
        return []
    await api.request("DELETE", path, token=token, parameters=_NOW)
    resource = path.rsplit("/", 1)[1]
    found = [item["metadata"] for item in items]
    return [f"{resource}/{item['name']} (finalizers: {item.get('finalizers', [])})" for item in found]
