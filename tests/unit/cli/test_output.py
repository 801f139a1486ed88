"""What the demo prints: the same words with and without colour, and a summary that says which promise was broken."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from reconciler.api.time import Seconds
from reconciler.demo.narrator import Line, Meters, Topic
from reconciler.demo.printer import Printer, plain
from reconciler.demo.referee import Verdict
from reconciler.demo.summary import summary
from reconciler.promises import Promise, Tally

LINE = Line(Seconds(5.12), Topic.SURGE, "[pod] is created beside another " + "x" * 100, Meters(2, 2, 12, 12))
VERDICT = Verdict(
    violations=(),
    promise=Promise(2, 1),
    tally=Tally(peak_pods=3, least_serving=2, writes=64),
    gpus=4,
    created=6,
    abandoned=1,
    pod_writes=64,
    manager_writes={"pods": 18, "events": 4},
)


def printed(line: Line, *, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=terminal, width=80, highlight=False, color_system="standard" if terminal else "auto"
    )
    Printer(console).line(line)
    return file.getvalue()


def test_a_pipe_gets_each_line_whole_and_without_colour() -> None:
    assert printed(LINE, terminal=False) == plain(LINE) + "\n"
    assert plain(LINE).startswith("  5.1s      2/2   12/12  surge    [pod] is created beside another xxx")


def test_a_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[36m" in printed(LINE, terminal=True)


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed(LINE, terminal=True), "weights may stay, colours not"


@pytest.mark.parametrize(
    ("meters", "words"),
    [
        (Meters(), "      -       0"),
        (Meters(0, 2, 4, 12), "    0/2    4/12"),
        (Meters(2, 2, 8, None), "    2/2       8"),
    ],
)
def test_meters_show_what_is_known(meters: Meters, words: str) -> None:
    assert plain(Line(Seconds(0), Topic.START, "x", meters)) == f"  0.0s  {words}  start    x"


def test_kept_promises_are_shown_with_their_numbers() -> None:
    assert summary(VERDICT, Seconds(36.2)) == [
        "The two promises, checked after each of 64 pod writes:",
        "  ceiling  kept    at most 3 pods at once (12 GPUs), terminating ones included;"
        " 3 allowed (2 Instances + maxSurge 1)",
        "  floor    kept    never fewer than 2 pods serving (2 wanted);"
        " no old pod left rotation before its replacement served",
        "In 36 s: 6 pods created, 1 surge abandoned.",
        "The manager wrote 22 times: 18 pods, 4 events.",
    ]


@pytest.mark.parametrize("promise", ["ceiling", "floor"])
def test_a_broken_promise_is_named_with_its_moments(promise: str) -> None:
    violations = tuple(f"1.000 llm-demo/llm/engine at pod-{n}: {promise}: too bad" for n in range(12))
    broken = Verdict(violations, Promise(2, 1), Tally(4, 1, 9), 4, 6, 0, 9, {"pods": 1})
    lines = summary(broken, Seconds(1))
    by_name = {line.split()[0]: line.split()[1] for line in lines[1:3]}
    assert by_name == {"ceiling": "kept", "floor": "kept"} | {promise: "BROKEN"}
    assert f"  {violations[0]}" in lines
    assert "  ... and 2 more" in lines
    assert not broken.kept


def test_a_demo_without_a_component_says_that_nothing_was_checked() -> None:
    nothing = Verdict((), None, Tally(), 0, 0, 0, 0, {})
    assert summary(nothing, Seconds(1))[1].startswith("  nothing to check")
