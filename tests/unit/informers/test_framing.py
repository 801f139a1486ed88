"""Item 19: lines out of chunks cut anywhere, of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconciler.informers.framing import LineFramer


def test_an_object_of_3_mib_is_one_line() -> None:
    framer = LineFramer()
    body = b'{"data":"' + b"x" * (3 * 2**20) + b'"}'
    data = body + b"\n"
    lines = [line for at in range(0, len(data), 65_536) for line in framer.feed(data[at : at + 65_536])]
    assert lines == [body]
    assert framer.rest == b""


def test_a_character_cut_in_two_stays_one() -> None:
    framer = LineFramer()
    data = '{"name":"Zürich 🚀"}\n'.encode()
    lines = [line for byte in data for line in framer.feed(bytes([byte]))]
    assert lines == [data[:-1]]


def test_blank_lines_say_nothing_and_the_rest_is_kept() -> None:
    framer = LineFramer()
    assert framer.feed(b"\n \r\na\r\n\nb") == [b"a\r"]
    assert framer.rest == b"b"
    assert framer.feed(b"\n") == [b"b"]


@given(st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line and not line.isspace())), st.data())
def test_cuts_change_nothing(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    framer, got = LineFramer(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += framer.feed(stream[start:stop])
    assert got == lines
