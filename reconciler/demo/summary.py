"""The end of the demo in words: the two promises with their numbers, and what the rollout cost."""

from __future__ import annotations

from reconciler.api.time import Seconds
from reconciler.demo.referee import Verdict

_SHOWN = 10
"""Violations listed; the first ones tell what went wrong."""


def summary(verdict: Verdict, took: Seconds) -> list[str]:
    """The lines of the summary."""
    promise, tally = verdict.promise, verdict.tally
    lines = [f"The two promises, checked after each of {verdict.pod_writes} pod writes:"]
    if promise is None:
        return [*lines, "  nothing to check: the InferenceService never became an InferenceReplica"]
    broken = {name for name in ("ceiling", "floor") if any(f": {name}: " in text for text in verdict.violations)}
    least, wanted = tally.least_serving or 0, promise.instances * promise.pods_per_instance
    lines += [
        f"  ceiling  {_word('ceiling' in broken)}  {_ceiling(verdict)}",
        f"  floor    {_word('floor' in broken)}  never fewer than {least} pods serving ({wanted} wanted);"
        " no old pod left rotation before its replacement served",
    ]
    lines += [f"  {text}" for text in verdict.violations[:_SHOWN]]
    if len(verdict.violations) > _SHOWN:
        lines.append(f"  ... and {len(verdict.violations) - _SHOWN} more")
    writes = ", ".join(f"{count} {plural}" for plural, count in verdict.manager_writes.items())
    lines += [
        f"In {took:.0f} s: {verdict.created} pods created, {_count(verdict.abandoned, 'surge')} abandoned.",
        f"The manager wrote {sum(verdict.manager_writes.values())} times: {writes}.",
    ]
    return lines


def _ceiling(verdict: Verdict) -> str:
    promise, peak = verdict.promise, verdict.tally.peak_pods
    most = f"at most {peak} pods at once ({peak * verdict.gpus} GPUs), terminating ones included"
    if promise is None or promise.ceiling is None:
        return f"{most}; none is set"
    allowed = f"{promise.ceiling} allowed ({promise.instances} Instances + maxSurge {promise.surge})"
    return f"{most}; {allowed}"


def _word(broken: bool) -> str:
    return "BROKEN" if broken else "kept  "


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
