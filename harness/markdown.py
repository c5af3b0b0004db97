"""Tables in Markdown, in the style of the docs."""

import re
from collections.abc import Sequence


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; columns whose every cell is a figure or empty are aligned to the right."""
    columns = zip(*rows, strict=True)
    figures = [all(re.fullmatch(r"[\d.,–−±%*/ ]*", cell) for cell in column) for column in columns]
    rule = ["---:" if right else "---" for right in figures]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heads, rule, *rows))
