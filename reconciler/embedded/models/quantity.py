"""Kubernetes quantities as whole thousandths, so that sums of requests are exact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import NewType

Milli = NewType("Milli", int)
"""Thousandths of a resource's unit: 1000 is one CPU, one GPU, one byte."""

_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d+))?")
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


@lru_cache(maxsize=4096)
def parse_quantity(text: str | int | float) -> Milli:
    """Read a quantity such as `500m`, `8`, `512Gi` or `1e3`; less than a thousandth is rounded up.

    Raises:
        ValueError: the text is no quantity.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"{text!r} is no quantity; write a number such as 8, 500m or 512Gi")
    number, suffix, exponent = found.groups()
    value = Decimal(number)
    if suffix:
        value *= _SUFFIX[suffix]
    elif exponent:
        value = value.scaleb(int(exponent))
    return Milli(int((value * 1000).to_integral_value(rounding=ROUND_CEILING)))


def parse_quantities(written: Mapping[str, str | int | float]) -> dict[str, Milli]:
    """Read a map of quantities.

    Raises:
        ValueError: one of them is no quantity; the message names its resource.
    """
    read: dict[str, Milli] = {}
    for resource, text in written.items():
        try:
            read[resource] = parse_quantity(text)
        except ValueError as error:
            raise ValueError(f"{resource}: {error}") from error
    return read
