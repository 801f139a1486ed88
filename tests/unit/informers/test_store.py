"""Items 2, 3, 9, 10, 12: what a store makes of events and of lists."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.api.kube import Pod, PodStatus
from reconciler.api.meta import Key, ObjectMeta, OwnerReference
from reconciler.informers import Change
from reconciler.informers.decode import Unreadable
from reconciler.informers.store import StoreWriter

A, B = Key("n", "a"), Key("n", "b")


def pod(name: str, version: int, uid: str = "u", *, owner: str = "", app: str = "", phase: str = "Running") -> Pod:
    owners = (OwnerReference(uid=owner, controller=True),) if owner else ()
    labels = {"app": app} if app else {}
    meta = ObjectMeta(
        name=name, namespace="n", uid=uid, resource_version=str(version), labels=labels, owner_references=owners
    )
    return Pod(meta, status=PodStatus(phase=phase))


def unreadable(name: str, version: int, uid: str = "u", *, removed: bool = False) -> Unreadable:
    return Unreadable(Key("n", name), uid, str(version), removed, "$.status: not so")


def by_owner(item: Pod) -> Iterable[str]:
    owner = item.metadata.controller
    return (owner.uid,) if owner else ()


def by_app(item: Pod) -> Iterable[str]:
    return (item.metadata.labels["app"],) if "app" in item.metadata.labels else ()


def writer_of(*pods: Pod, version: int = 10) -> StoreWriter[Pod]:
    writer: StoreWriter[Pod] = StoreWriter({"owner": by_owner, "app": by_app})
    listed(writer, *pods, version=version)
    return writer


def listed(
    writer: StoreWriter[Pod], *pods: Pod, version: int, suspects: tuple[Unreadable, ...] = ()
) -> list[Change[Pod]]:
    writer.begin()
    writer.add_page(pods, suspects, str(version))
    return writer.swap(str(version))


def test_item_3_a_list_is_told_as_a_diff() -> None:
    same, old, gone = pod("a", 1), pod("b", 2, "v"), pod("c", 3, "w")
    writer = writer_of(same, old, gone)
    kept, new, added = pod("a", 1), pod("b", 11, "v"), pod("d", 12, "x")
    changes = listed(writer, kept, new, added, version=12)
    assert changes == [
        Change(Key("n", "c"), gone, None),
        Change(B, old, new),
        Change(Key("n", "d"), None, added),
    ]
    assert writer.view.get(A) is same, "what hasn't changed isn't kept twice"
    assert writer.view.resource_version == "12"


def test_item_3_another_uid_under_a_name_is_a_deletion_and_a_new_object() -> None:
    old, new = pod("a", 5, "u1"), pod("a", 11, "u2")
    expected = [Change(A, old, None), Change(A, None, new)]
    assert listed(writer_of(old), new, version=11) == expected
    assert writer_of(old).apply(new) == expected


def test_item_2_a_list_under_way_is_not_seen() -> None:
    writer = writer_of(pod("a", 1, owner="x"))
    writer.begin()
    writer.add_page([pod("b", 11, owner="x")], [], "11")
    assert [item.metadata.name for item in writer.view.values()] == ["a"]
    assert [item.metadata.name for item in writer.view.by_index("owner", "x")] == ["a"]
    writer.begin()
    writer.add_page([pod("c", 12)], [], "12")
    writer.swap("12")
    assert [item.metadata.name for item in writer.view] == ["c"], "a list begun anew has nothing of the former"


def test_item_10_g3_an_older_event_is_dropped_and_counted() -> None:
    writer = writer_of(pod("a", 10))
    assert writer.apply(pod("a", 8, phase="Pending")) == []
    assert writer.remove(pod("a", 9)) == []
    assert writer.view.get(A) == pod("a", 10)
    assert writer.dropped_old == 2


def test_item_10_an_old_event_after_a_deletion_brings_nothing_back() -> None:
    writer = writer_of(pod("a", 10))
    writer.remove(pod("a", 12))
    assert writer.apply(pod("a", 10)) == []
    assert A not in writer.view


def test_an_event_told_twice_is_told_once() -> None:
    writer = writer_of()
    assert len(writer.apply(pod("a", 11))) == 1
    assert writer.apply(pod("a", 11)) == []
    assert writer.dropped_old == 1


def test_item_10_h3_a_list_with_a_lower_version_is_the_new_truth() -> None:
    writer = writer_of(pod("a", 10), pod("b", 20, "v"), version=20)
    restored = pod("a", 10, phase="Failed")
    changes = listed(writer, restored, version=15)
    assert changes == [Change(B, pod("b", 20, "v"), None), Change(A, pod("a", 10), restored)]
    assert writer.view.resource_version == "15"
    assert writer.apply(pod("a", 16)) != [], "and events after it count"


def test_item_12_indexes_follow_and_empty_buckets_go() -> None:
    writer = writer_of(pod("a", 1, owner="x", app="m"), pod("b", 2, "v", owner="x"))
    changes = writer.apply(pod("a", 11, owner="y"))
    assert [(change.old and by_owner(change.old), change.new and by_owner(change.new)) for change in changes] == [
        (("x",), ("y",))
    ], "handlers see both owners"
    assert [item.metadata.name for item in writer.view.by_index("owner", "x")] == ["b"]
    assert [item.metadata.name for item in writer.view.by_index("owner", "y")] == ["a"]
    assert writer.view.by_index("app", "m") == ()
    assert writer.view.index_values("app") == ()
    writer.remove(pod("b", 12, "v", owner="x"))
    assert writer.view.index_values("owner") == ("y",)


def test_an_indexer_that_raises_stops_nothing() -> None:
    def raising(item: Pod) -> Iterable[str]:
        raise KeyError(item.metadata.name)

    writer: StoreWriter[Pod] = StoreWriter({"bad": raising, "app": by_app})
    listed(writer, pod("a", 1, app="m"), version=1)
    assert len(writer.view.by_index("app", "m")) == 1
    assert writer.indexer_errors == 1


def test_item_9_an_unreadable_state_leaves_the_former_one_marked() -> None:
    writer = writer_of(pod("a", 1, owner="x"))
    assert writer.suspect(unreadable("a", 11)) == [Change(A, pod("a", 1, owner="x"), pod("a", 1, owner="x"))]
    assert writer.view.get(A) == pod("a", 1, owner="x")
    assert dict(writer.view.suspects) == {A: "$.status: not so"}
    assert writer.apply(pod("a", 12)) == [Change(A, pod("a", 1, owner="x"), pod("a", 12))]
    assert dict(writer.view.suspects) == {}
    assert writer.undecodable == 1


def test_item_9_an_unreadable_state_of_another_object_is_a_deletion() -> None:
    writer = writer_of(pod("a", 1))
    assert writer.suspect(unreadable("a", 11, "u2")) == [Change(A, pod("a", 1), None), Change(A, None, None)]
    assert writer.view.get(A) is None
    assert A in writer.view.suspects
    assert writer.suspect(unreadable("a", 12, "u2", removed=True)) == [Change(A, None, None)]
    assert dict(writer.view.suspects) == {}


def test_item_9_lists_with_unreadable_items() -> None:
    writer = writer_of(pod("a", 1, owner="x"))
    bad = (unreadable("a", 11), unreadable("b", 12, "v"))
    assert listed(writer, version=12, suspects=bad) == [
        Change(A, pod("a", 1, owner="x"), pod("a", 1, owner="x")),
        Change(B, None, None),
    ]
    assert len(writer.view.by_index("owner", "x")) == 1
    assert listed(writer, version=13, suspects=bad) == [], "told once"
    assert listed(writer, pod("a", 1, owner="x"), version=14) == [
        Change(A, pod("a", 1, owner="x"), pod("a", 1, owner="x")),
        Change(B, None, None),
    ], "readable again, and gone"
    assert dict(writer.view.suspects) == {}


def test_g5_a_deletion_of_an_object_never_seen_is_told() -> None:
    assert writer_of().remove(pod("a", 12)) == [Change(A, pod("a", 12), None)]


def test_item_15_bookmarks_move_the_version_forward_only() -> None:
    writer = writer_of(version=10)
    writer.bookmark("9")
    assert writer.view.resource_version == "10"
    writer.bookmark("100")
    assert writer.view.resource_version == "100"
