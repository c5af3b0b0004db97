"""Lists of objects in JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from predictor.errors import InputError


def iterate_objects(path: Path, text: str, start: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON list with their places, one by one, as lists can be long.

    Args:
        path: The file, for error messages.
        text: Its text.
        start: Position just after the list's opening bracket.

    Raises:
        InputError: The list is not valid JSON, or holds something else.
    """
    decode, number = json.JSONDecoder().raw_decode, 0
    gap = re.compile(r"[\s,]*")
    while True:
        found = gap.match(text, start)
        at = found.end() if found else start
        if text[at : at + 1] == "]":
            return
        place = f"{path}, job {number}"
        try:
            value, start = decode(text, at)
        except (ValueError, RecursionError) as error:
            problem = f"is not valid JSON ({getattr(error, 'msg', error)})"
            raise InputError(place, problem, "give the whole file") from None
        if not isinstance(value, dict):
            raise InputError(place, "is not a JSON object", "give the file as published")
        yield place, value
        number += 1
