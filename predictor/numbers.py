"""Numbers in texts that users write."""


def plain(text: str) -> str:
    """A number's text, checked for `int` or `float`, which accept 1_000 and digits of any alphabet.

    Raises:
        ValueError: It has an underscore, or a character other than of ASCII.
    """
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return text
