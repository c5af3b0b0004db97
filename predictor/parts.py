"""Parts of a step's work that do not depend on each other."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")


class Mapper(Protocol):
    """Applies a function to the parts of a step's work, in order or in parallel."""

    def __call__(
        self, name: str, function: Callable[[Part], Result], parts: Mapping[str, Part]
    ) -> list[Result]:
        """Return the results in the order of the parts.

        Args:
            name: A verb for what the function does, such as "forecast".
            function: Must be safe to call from several threads.
            parts: The parts by label.

        Raises:
            Exception: Any exception of the function.
        """
        ...


def map_in_order(
    name: str, function: Callable[[Part], Result], parts: Mapping[str, Part]
) -> list[Result]:
    """See `Mapper`; calls the function for one part after another."""
    return [function(part) for part in parts.values()]
