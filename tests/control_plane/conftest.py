"""The shared control plane of a test session, started by the first test that asks for it.

It lives in a thread with an event loop of its own, so each test keeps the loop that pytest-asyncio gives it (one a test
by default) and may ask for any other; nothing here has to be marked with a loop scope. A control plane that cannot be
had is an error of every test that needs it, never a skip.
"""

from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest
import pytest_asyncio
from _pytest.capture import CaptureManager

from tests.control_plane.build import Programs, control_plane_programs
from tests.control_plane.commands import MASTERS, Options
from tests.control_plane.harness import ControlPlane
from tests.control_plane.thread import in_thread

KUBELET = "kubelet-model"
"""A user for whoever plays the kubelet, so that its writes have a name of their own in the audit log."""

_numbers = count(1)


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Programs:
    """The programs; building them takes minutes, so the progress lines go past pytest's capturing."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert isinstance(capture, CaptureManager)
    with capture.global_and_fixture_disabled():
        return control_plane_programs()


@pytest.fixture(scope="session")
def control_plane(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """The session's control plane."""
    options = Options(programs=programs, users={KUBELET: (MASTERS,)})
    with in_thread(tmp_path_factory.mktemp("control-plane"), options) as control_plane:
        yield control_plane


@pytest_asyncio.fixture
async def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A namespace of this test's own, in which pods can be created; nothing of it is left when the test has ended."""
    words = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower().removeprefix("test_"))
    name = f"{words[:40].strip('-')}-{next(_numbers)}"
    await control_plane.namespace(name)
    yield name
    await control_plane.clear_namespace(name)
