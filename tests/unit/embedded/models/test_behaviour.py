"""Which behaviour a container has."""

from __future__ import annotations

import math
from random import Random

import pytest

from reconciler.embedded.models.behaviour import (
    BEHAVIOUR_ANNOTATION,
    BUILT_IN,
    NORMAL,
    Behaviour,
    BehaviourError,
    Behaviours,
)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("repo/engine:1", "normal"),
        ("repo/engine:2.0-never-ready", "never-ready"),
        ("repo/engine:bad-image", "bad-image"),
        ("registry:5000/crash-once", "crash-once"),
        ("repo/flap", "normal"),
        ("repo/mine:3", "mine"),
    ],
)
def test_images_behave_by_rule_then_by_the_name_in_their_tag(image: str, name: str) -> None:
    assert Behaviours([("*/mine:*", Behaviour(name="mine"))]).of(image, {}).name == name


def test_every_built_in_behaviour_answers_to_its_name_only() -> None:
    for name in BUILT_IN:
        assert Behaviours().of(f"engine:1-{name}", {}) is BUILT_IN[name]


def test_a_rule_set_later_comes_first() -> None:
    behaviours = Behaviours([("*", Behaviour(name="first"))])
    assert behaviours.of("x", {}).name == "first"
    behaviours.set("x", Behaviour(name="second"))
    assert behaviours.of("x", {}).name == "second"


def test_an_annotation_overrides_the_image_and_single_fields() -> None:
    text = "slow-load, load_seconds=30,shutdown_seconds=inf , exit_code=3,ready_in_shutdown=true,pre_stop_seconds=4"
    found = Behaviours().of("engine:flap", {BEHAVIOUR_ANNOTATION: text})
    assert (found.name, found.load_seconds, found.shutdown_seconds) == ("slow-load", 30.0, math.inf)
    assert (found.exit_code, found.ready_in_shutdown, found.pre_stop_seconds) == (3, True, 4.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lazy", "'lazy' is no behaviour; known are bad-image, "),
        ("normal,load_seconds=long", "load_seconds='long': write a number or inf"),
        ("normal,load_seconds=-1", "load_seconds='-1': write a number >= 0 or inf"),
        ("normal,spread=1", "spread='1': a behaviour has no such field"),
        ("normal,ready_in_shutdown=1", "ready_in_shutdown='1': write true or false"),
    ],
)
def test_an_annotation_that_can_not_be_understood_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(BehaviourError) as caught:
        Behaviours().of("x", {BEHAVIOUR_ANNOTATION: text})
    assert message in str(caught.value)


def test_jitter_spreads_within_its_bounds_and_repeats_with_the_seed() -> None:
    spans = [Behaviour(jitter=0.5).spread(10, Random(seed)) for seed in range(50)]
    assert all(5 <= span <= 15 for span in spans)
    assert len(set(spans)) == 50
    assert spans == [Behaviour(jitter=0.5).spread(10, Random(seed)) for seed in range(50)]
    assert NORMAL.spread(math.inf, Random(1)) == math.inf
