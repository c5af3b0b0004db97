"""Readers of data sets in their published formats.

Each reads only the samples that the job needs, since every resume waits for it.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.errors import InvalidInput
from trainer.text import BEGIN, END, PADDING, UNKNOWN

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

REMEDY = "fetch the data set again"
PICTURE = 3 * 32 * 32
"""Bytes of a CIFAR-10 picture, without the label byte before them."""


def read_pictures(folder: Path, most: int) -> tuple[Bytes, Ints]:
    """Read up to `most` samples of CIFAR-10's binary version, `data_batch_*.bin`.

    Returns:
        Pictures of shape (samples, 3, 32, 32) and labels of shape (samples,).

    Raises:
        InvalidInput: No file exists, or one is damaged.
    """
    records: list[Bytes] = []
    paths = sorted(folder.glob("data_batch_*.bin"))
    if not paths:
        raise InvalidInput(str(folder), "no data_batch_*.bin", REMEDY)
    for path in paths:
        size = path.stat().st_size
        if not size or size % (PICTURE + 1):
            problem = f"{size} bytes are not whole pictures of {PICTURE + 1}"
            raise InvalidInput(str(path), problem, REMEDY)
        missing = most - sum(map(len, records))
        batch: Bytes = np.memmap(path, np.uint8, "r").reshape(-1, PICTURE + 1)[:missing]
        if len(batch) and batch[:, 0].max() > 9:
            raise InvalidInput(str(path), f"label {batch[:, 0].max()} is above 9", REMEDY)
        records.append(batch)
    whole = np.concatenate(records)
    return whole[:, 1:].reshape(-1, 3, 32, 32), whole[:, 0].astype(np.int64)


def read_words(path: Path, most: int, length: int, vocabulary: int) -> Ints:
    """Read running text with spaces between words, such as the Penn Treebank and WikiText.

    Returns up to `most` samples of `length` words, shape (samples, length + 1); each begins with
    the last word of the previous one. The vocabulary has the most frequent words.

    Raises:
        InvalidInput: It is damaged, or shorter than one sample.
    """
    words: list[str] = []
    for line in _lines(path):
        if line.strip():
            words += [*line.split(), "\n"]
        if len(words) > most * length:
            break
    samples = min(most, (len(words) - 1) // length)
    if samples < 1:
        raise InvalidInput(str(path), f"{len(words)} words are less than a sample", REMEDY)
    numbers = _numbers(words, vocabulary)
    coded = np.array([numbers.get(word, UNKNOWN) for word in words], np.int64)
    windows: Ints = np.arange(samples)[:, None] * length + np.arange(length + 1)
    return coded[windows]


def read_pairs(
    source: Path, target: Path, most: int, length: int, vocabulary: int
) -> tuple[Ints, Ints]:
    """Read a parallel corpus with a sentence per line, such as Multi30k; cut longer sentences.

    Returns up to `most` padded samples: sources of shape (samples, length) and targets of shape
    (samples, length + 1). Each language's vocabulary has the most frequent words.

    Raises:
        InvalidInput: A file is damaged, empty or ends before the other.
    """
    pairs = list(islice(zip_longest(_lines(source), _lines(target)), most))
    if not pairs:
        raise InvalidInput(str(source), "it is empty", REMEDY)
    if None in pairs[-1]:
        short, long = (source, target) if pairs[-1][0] is None else (target, source)
        raise InvalidInput(str(short), f"it has fewer lines than {long.name}", REMEDY)
    left, right = ([line.split() for line in side] for side in zip(*pairs, strict=True))
    return (
        _sentences(left, length, vocabulary, begin=[]),
        _sentences(right, length + 1, vocabulary, begin=[BEGIN]),
    )


def read_ratings(path: Path, most: int, items: int) -> tuple[Ints, Ints]:
    """Read MovieLens' `ratings.csv`: userId and movieId first, all ratings of a user in a row.

    Reads up to `most` users, and keeps only the most frequent items. Returns the items of all
    users in a row, and the index of each user's first item, shape (users + 1,).

    Raises:
        InvalidInput: It is damaged, or has no ratings.
    """
    users: dict[str, list[str]] = {}
    for number, line in enumerate(_lines(path), 1):
        user, _, rest = line.rstrip().partition(",")
        item = rest.partition(",")[0]
        if number == 1 and user == "userId":
            continue
        if not (user.isdecimal() and item.isdecimal()):
            raise InvalidInput(f"{path}:{number}", "no userId and movieId", REMEDY)
        if user not in users and len(users) == most:
            break
        users.setdefault(user, []).append(item)
    popular = _ranked(Counter(item for rated in users.values() for item in rated))[:items]
    numbers = {item: number for number, item in enumerate(popular)}
    rated = [sorted({numbers[item] for item in row if item in numbers}) for row in users.values()]
    rated = [row for row in rated if row]
    if not rated:
        raise InvalidInput(str(path), "no ratings", REMEDY)
    starts = np.cumsum([0, *map(len, rated)])
    return np.concatenate(rated).astype(np.int64), starts.astype(np.int64)


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file; wrong bytes and missing files are the data set's fault."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            yield from file
    except UnicodeDecodeError:
        raise InvalidInput(str(path), "no UTF-8 text", REMEDY) from None
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error), REMEDY) from None


def _numbers(words: list[str], vocabulary: int) -> dict[str, int]:
    frequent = _ranked(Counter(words))[: vocabulary - UNKNOWN - 1]
    return {word: number for number, word in enumerate(frequent, UNKNOWN + 1)}


def _ranked(counts: Counter[str]) -> list[str]:
    """Sort by frequency, then by name, so that the order is deterministic."""
    return sorted(counts, key=lambda word: (-counts[word], word))


def _sentences(lines: list[list[str]], length: int, vocabulary: int, begin: list[int]) -> Ints:
    numbers = _numbers([word for line in lines for word in line], vocabulary)
    coded = np.full((len(lines), length), PADDING, np.int64)
    for row, line in zip(coded, lines, strict=True):
        words = [*begin, *(numbers.get(word, UNKNOWN) for word in line)][: length - 1]
        row[: len(words) + 1] = [*words, END]
    return coded
