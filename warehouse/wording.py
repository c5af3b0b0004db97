"""Words for figures."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, such as `1 GPU` and `2 GPUs`."""
    return f"{number} {noun}{'s' * (number != 1)}"
