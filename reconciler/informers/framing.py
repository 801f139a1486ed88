"""Lines out of chunks, with no limit on a line.

A watch is a stream of JSON documents, one a line, that arrives in pieces cut anywhere: in a number, in an escape,
inside a UTF-8 character. The framer works on bytes and only looks for the newline, which JSON never contains unescaped,
so a 3 MiB object is one line and nothing is decoded twice.
"""

from __future__ import annotations


class LineFramer:
    """Collects chunks and gives complete lines back."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines completed by this chunk, without their ends; blank ones are left out."""
        head, newline, tail = chunk.partition(b"\n")
        if not newline:
            # Kept in pieces until the line ends: joining at every chunk would be quadratic in the size of an object.
            if head:
                self._parts.append(head)
            return []
        if self._parts:
            self._parts.append(head)
            head = b"".join(self._parts)
        lines = [head, *tail.split(b"\n")]
        rest = lines.pop()
        self._parts = [rest] if rest else []
        return [line for line in lines if line and not line.isspace()]

    @property
    def rest(self) -> bytes:
        """What has arrived of a line that hasn't ended; at a clean end of file it should be blank."""
        return b"".join(self._parts)
