"""The cycle of list and watch as a pure state machine: what happened goes in, what to do next comes out.

`step(state, event, now, random) -> (state, actions)`. The actions are carried out in order; the last one is the one the
shell waits for, and its outcome is the next event. The machine holds every decision about versions, errors and time of
`spec/informers.md` (items 1, 4-8, 10), so that all of them can be tried without a loop, a socket or a clock.

The version comes from lists, later events and bookmarks. A relist asks for the newest state (no version), never for a
cached one: what acts on the cache deletes things, so the past isn't good enough (field bugs H1).
"""

from __future__ import annotations

from enum import Enum, auto
from random import Random
from typing import TypeAlias

import msgspec

from reconciler.api.time import Seconds

PAGE_LIMIT = 500
"""Objects a page: 500 pods decode in 7-10 ms, after which the loop gets its turn."""
WATCH_SECONDS = 300
"""Shortest length asked of a watch; the longest is twice that, so that not all watches end at once."""
HEARTBEAT = Seconds(70.0)
"""Longest silence where bookmarks come, which is about once a minute."""
GRACE = Seconds(5.0)
"""Added to the length asked of the server where silence says nothing."""
SHORT_WATCH = Seconds(1.0)
"""A watch without events that ends sooner is a failure: a server that ends them all would be asked without pause."""
FIRST_DELAY = Seconds(0.8)
LONGEST_DELAY = Seconds(30.0)
SLOW_DELAY = Seconds(8.0)
"""First delay where only a person can help (not allowed, no such type); doubles to `SLOWEST_DELAY`."""
SLOWEST_DELAY = Seconds(60.0)
HEALTHY = Seconds(120.0)
"""How long all must be well before earlier failures are forgotten."""
ERRORS_BEFORE_LIST = 5
"""Errors at one version in a row after which the version is no longer trusted."""


class Phase(Enum):
    """What the informer is doing."""

    LISTING = auto()
    WATCHING = auto()
    PAUSING = auto()


class Trouble(Enum):
    """The kinds of failure that call for different reactions."""

    EXPIRED = auto()
    """410: the version, or the continue token, is gone."""
    THROTTLED = auto()
    """429, or 503 with Retry-After."""
    REFUSED = auto()
    """401, 403, 404, 400: only a person can change that."""
    SILENT = auto()
    """The stream said nothing for longer than its limit."""
    UNAVAILABLE = auto()
    """5xx, the network: the version stays good however long that lasts."""
    BROKEN = auto()
    """An ERROR event, a body that isn't JSON, a version the server hasn't reached: a list helps if it goes on."""
    LOST = auto()
    """Something was missed that only a list can bring: an object without a readable key, versions that go back."""


class Begin(msgspec.Struct, frozen=True, gc=False):
    """The informer starts."""


class PageArrived(msgspec.Struct, frozen=True, gc=False):
    """A page of the list has been decoded and set aside."""

    resource_version: str
    continue_token: str = ""


class Opened(msgspec.Struct, frozen=True, gc=False):
    """The watch's head arrived with a good status."""


class Progress(msgspec.Struct, frozen=True, gc=False):
    """A piece of the watch has been applied."""

    resource_version: str
    events: int = 0
    """Events that told something new."""
    bookmarks: int = 0


class Ended(msgspec.Struct, frozen=True, gc=False):
    """The server ended the watch cleanly."""


class Failed(msgspec.Struct, frozen=True, gc=False):
    """What was under way failed."""

    trouble: Trouble
    message: str
    retry_after: Seconds | None = None


class PauseOver(msgspec.Struct, frozen=True, gc=False):
    """The delay has passed."""


Event: TypeAlias = Begin | PageArrived | Opened | Progress | Ended | Failed | PauseOver


class StartDraft(msgspec.Struct, frozen=True, gc=False):
    """Throw away what has been listed aside, and begin anew."""


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Swap the complete list in, and tell the handlers."""

    resource_version: str


class FetchPage(msgspec.Struct, frozen=True, gc=False):
    """Ask for a page of the newest list."""

    continue_token: str = ""
    limit: int = PAGE_LIMIT


class OpenWatch(msgspec.Struct, frozen=True, gc=False):
    """Open a watch."""

    resource_version: str
    timeout_seconds: int
    silence: Seconds


class ReadOn(msgspec.Struct, frozen=True, gc=False):
    """Wait for the next piece of the watch."""


class CloseWatch(msgspec.Struct, frozen=True, gc=False):
    """Give the watch's connection up."""


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Wait."""

    delay: Seconds


Action: TypeAlias = StartDraft | Commit | FetchPage | OpenWatch | ReadOn | CloseWatch | Pause


class State(msgspec.Struct, frozen=True):
    """Where the cycle is, and what it remembers.

    Attributes:
        phase: what is under way.
        resource_version: the last good version, empty when a list is needed.
        list_version: version of page 1 of the list under way.
        continue_token: the page being fetched; a failed page is asked for again, not the whole list.
        failures: failures in a row, for the backoff.
        errors_here: errors in a row at this version without progress.
        expired: whether a 410 came since all was last well; the first costs no delay.
        healthy_since: since when nothing has failed, None after a failure.
        opened: when the watch under way was opened.
        progressed: whether it brought an event.
        heartbeat: whether it brought a bookmark.
        bookmarks: whether this server has sent bookmarks.
        quiet: watches in a row cut for silence that brought no bookmark.
        lists: complete lists so far.
        watches: watches opened so far.
        delay: the pause under way, 0 when there is none.
        trouble: what is wrong at present, None while all is well.
        message: the last failure in words.
    """

    phase: Phase = Phase.PAUSING
    resource_version: str = ""
    list_version: str = ""
    continue_token: str = ""
    failures: int = 0
    errors_here: int = 0
    expired: bool = False
    healthy_since: float | None = None
    opened: float | None = None
    progressed: bool = False
    heartbeat: bool = False
    bookmarks: bool = False
    quiet: int = 0
    lists: int = 0
    watches: int = 0
    delay: Seconds = Seconds(0.0)
    trouble: Trouble | None = None
    message: str = ""

    @property
    def patient(self) -> bool:
        """Whether silence is taken for normal, since this server seems to send no bookmarks."""
        return self.quiet >= (2 if self.bookmarks else 1)


Stepped: TypeAlias = tuple[State, tuple[Action, ...]]


def step(state: State, event: Event, now: float, random: Random) -> Stepped:
    """The next state, and what to do, the last action being the one to wait for.

    Args:
        state: where the cycle is.
        event: what happened.
        now: the loop's time in seconds.
        random: the source of jitter.
    """
    match event:
        case Begin():
            return _list(state)
        case PageArrived():
            return _page(state, event, now, random)
        case Opened():
            healthy = state.healthy_since if state.healthy_since is not None else now
            fresh = {"opened": now, "progressed": False, "heartbeat": False, "healthy_since": healthy}
            return msgspec.structs.replace(state, **fresh, trouble=None), (ReadOn(),)
        case Progress():
            return _progress(state, event), (ReadOn(),)
        case Ended():
            return _ended(state, now, random)
        case Failed():
            return _failed(state, event, now, random)
        case PauseOver():
            if state.resource_version and not state.list_version:
                return _watch(state, random)
            return _list(state) if not state.continue_token else _fetch(state)


def _list(state: State) -> Stepped:
    begun, actions = _fetch(msgspec.structs.replace(state, list_version="", continue_token="", resource_version=""))
    return begun, (StartDraft(), *actions)


def _fetch(state: State) -> Stepped:
    return (
        msgspec.structs.replace(state, phase=Phase.LISTING, delay=Seconds(0.0)),
        (FetchPage(state.continue_token),),
    )


def _page(state: State, page: PageArrived, now: float, random: Random) -> Stepped:
    version = state.list_version or page.resource_version
    if page.continue_token:
        return _fetch(msgspec.structs.replace(state, list_version=version, continue_token=page.continue_token))
    healthy = state.healthy_since if state.healthy_since is not None else now
    listed = msgspec.structs.replace(
        state,
        resource_version=version,
        list_version="",
        continue_token="",
        lists=state.lists + 1,
        errors_here=0,
        healthy_since=healthy,
        trouble=None,
    )
    watching, actions = _watch(listed, random)
    return watching, (Commit(version), *actions)


def _watch(state: State, random: Random) -> Stepped:
    seconds = int(WATCH_SECONDS * (1 + random.random()))
    silence = Seconds(seconds + GRACE) if state.patient else HEARTBEAT
    watching = msgspec.structs.replace(
        state,
        phase=Phase.WATCHING,
        opened=None,
        progressed=False,
        heartbeat=False,
        watches=state.watches + 1,
        delay=Seconds(0.0),
    )
    return watching, (OpenWatch(state.resource_version, seconds, silence),)


def _progress(state: State, seen: Progress) -> State:
    heartbeat = state.heartbeat or seen.bookmarks > 0
    return msgspec.structs.replace(
        state,
        resource_version=seen.resource_version or state.resource_version,
        progressed=state.progressed or seen.events > 0,
        heartbeat=heartbeat,
        bookmarks=state.bookmarks or heartbeat,
        quiet=0 if heartbeat else state.quiet,
        errors_here=0 if seen.events or seen.bookmarks else state.errors_here,
    )


def _ended(state: State, now: float, random: Random) -> Stepped:
    short = state.opened is None or now - state.opened < SHORT_WATCH
    if short and not state.progressed:
        ended = Failed(Trouble.BROKEN, "the server ended the watch at once, without an event")
        return _failed(state, ended, now, random)
    resumed, actions = _watch(state, random)
    return resumed, (CloseWatch(), *actions)


def _failed(state: State, failure: Failed, now: float, random: Random) -> Stepped:
    if state.healthy_since is not None and now - state.healthy_since >= HEALTHY:
        state = msgspec.structs.replace(state, failures=0, expired=False, errors_here=0)
    closing: tuple[Action, ...] = (CloseWatch(),) if state.phase is Phase.WATCHING else ()
    if failure.trouble is Trouble.SILENT and state.phase is Phase.WATCHING and not state.heartbeat:
        quiet = msgspec.structs.replace(state, quiet=state.quiet + 1, message=failure.message)
        if not state.patient and quiet.patient:
            # Perhaps there was nothing to say, and this server sends no bookmarks: resume at once, and wait longer.
            resumed, actions = _watch(quiet, random)
            return resumed, (*closing, *actions)
        state = quiet
    first_expiry = failure.trouble is Trouble.EXPIRED and not state.expired
    state = _forget_version(state, failure.trouble)
    if first_expiry:
        # The ordinary fate of a quiet type after compaction: no alarm, and no delay (H7).
        relisting, actions = _list(msgspec.structs.replace(state, expired=True, message=failure.message))
        return relisting, (*closing, *actions)
    delay = _delay(state.failures, failure, random)
    paused = msgspec.structs.replace(
        state,
        phase=Phase.PAUSING,
        failures=state.failures + 1,
        healthy_since=None,
        opened=None,
        delay=delay,
        trouble=failure.trouble,
        message=failure.message,
    )
    return paused, (*closing, Pause(delay))


def _forget_version(state: State, trouble: Trouble) -> State:
    """What of the versions is still good after a failure."""
    if state.phase is Phase.LISTING:
        # A page that failed is asked for again; a refused or expired token ends that list.
        if trouble in (Trouble.EXPIRED, Trouble.REFUSED, Trouble.LOST):
            return msgspec.structs.replace(state, list_version="", continue_token="", resource_version="")
        return state
    if trouble in (Trouble.EXPIRED, Trouble.LOST):
        return msgspec.structs.replace(state, resource_version="", errors_here=0)
    if trouble in (Trouble.THROTTLED, Trouble.UNAVAILABLE):
        return state
    errors = state.errors_here + 1
    if errors >= ERRORS_BEFORE_LIST:
        return msgspec.structs.replace(state, resource_version="", errors_here=0)
    return msgspec.structs.replace(state, errors_here=errors)


def _delay(failures: int, failure: Failed, random: Random) -> Seconds:
    doubled = 2.0 ** min(failures, 16)
    if failure.trouble is Trouble.REFUSED:
        # Half of it fixed: a server that refuses us must not be asked again at once by chance.
        most = min(SLOWEST_DELAY, SLOW_DELAY * doubled)
        return Seconds(most / 2 + random.random() * most / 2)
    jitter = random.random() * min(LONGEST_DELAY, FIRST_DELAY * doubled)
    return Seconds(jitter + (failure.retry_after or 0.0))
