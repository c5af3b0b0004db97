"""Parser of `--set NAME=VALUE`, the parameters of a policy."""

import math
from collections.abc import Iterable

from predictor.errors import InputError
from predictor.numbers import plain
from tasks.record import Parameter


def parse_parameters(texts: Iterable[str]) -> tuple[Parameter, ...]:
    """Parse parameters of a policy; returns them sorted by name.

    Args:
        texts: Texts of the form NAME=VALUE.

    Raises:
        InputError: A text is not of that form, a value is not finite, or a name is repeated.
    """
    parsed: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(plain(value))
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            problem = f"{text!r} is not NAME=VALUE with a finite number"
            raise InputError("parameters", problem, "give one, such as favour=1.5")
        if name in parsed:
            raise InputError(f"parameters.{name}", "is given twice", "give it once")
        parsed[name] = number
    return tuple(Parameter(name, parsed[name]) for name in sorted(parsed))
