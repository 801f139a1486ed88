"""The objects we read and write, as frozen msgspec Structs of exactly the fields in use; no I/O.

Objects from the wire keep the parts a user may get wrong (`spec`, `status`) as raw JSON, so that one badly shaped
object is decoded where its owner can report it in a condition, never where it would stop a watch.
"""
