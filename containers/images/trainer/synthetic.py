"""Random data in the shapes of the real sets, with structure to learn.

A tenth of it is noise, so that the gradient noise grows relative to the signal as a model learns.
All numbers are chosen by hand.
"""

import numpy as np
import numpy.typing as npt

from trainer.text import BEGIN, END, PADDING, UNKNOWN

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

WORDS = 200
"""Number of words in use, fewer than a vocabulary has, so that each occurs often."""

NOISE = 0.1
"""Share of labels, words and items that are random."""

TASTES = 16
"""Number of user groups of a recommender."""


def make_pictures(generator: np.random.Generator, samples: int, classes: int) -> tuple[Bytes, Ints]:
    """Draw a noisy coarse pattern for each label, with the shapes of CIFAR-10."""
    coarse = generator.integers(64, 192, (classes, 3, 4, 4))
    pattern = coarse.repeat(8, axis=2).repeat(8, axis=3)
    shown = generator.integers(0, classes, samples)
    grain = generator.integers(-64, 64, (samples, 3, 32, 32), np.int8)
    return (pattern[shown] + grain).astype(np.uint8), _noisy(generator, shown, classes)


def make_words(generator: np.random.Generator, samples: int, length: int) -> Ints:
    """Draw text in which each word has two possible successors, shape (samples, length + 1)."""
    followers = generator.integers(0, WORDS, (WORDS, 2))
    text = np.empty((samples, length + 1), np.int64)
    text[:, 0] = generator.integers(0, WORDS, samples)
    for place in range(length):
        follower = followers[text[:, place], generator.integers(0, 2, samples)]
        text[:, place + 1] = _noisy(generator, follower, WORDS)
    return text + UNKNOWN + 1


def make_pairs(generator: np.random.Generator, samples: int, length: int) -> tuple[Ints, Ints]:
    """Draw sentences and their word-by-word translations, with the shapes of a parallel corpus."""
    meaning = generator.permutation(WORDS)
    # Squares favour the first words: in a language, some words are far more frequent.
    said = (generator.random((samples, length - 1)) ** 2 * WORDS).astype(np.int64)
    heard = _noisy(generator, meaning[said], WORDS)
    lengths = generator.integers(length // 2, length, samples)[:, None]
    place = np.arange(length)
    source = np.full((samples, length), PADDING, np.int64)
    source[:, :-1] = said + UNKNOWN + 1
    target = np.full((samples, length + 1), BEGIN, np.int64)
    target[:, 1:-1] = heard + UNKNOWN + 1
    source[place == lengths] = END
    source[place > lengths] = PADDING
    target[:, 1:][place == lengths] = END
    target[:, 1:][place > lengths] = PADDING
    return source, target


def make_ratings(generator: np.random.Generator, samples: int, items: int) -> tuple[Ints, Ints]:
    """Draw items of users with one of a few tastes, in the form of `readers.read_ratings`."""
    each = 20
    taste = generator.integers(0, TASTES, samples)[:, None]
    liked = generator.integers(0, items // (4 * TASTES), (samples, each)) * TASTES + taste
    chosen = np.sort(_noisy(generator, liked, items), axis=1)
    new = np.diff(chosen, axis=1, prepend=-1) > 0
    return chosen[new], np.cumsum([0, *new.sum(1)])


def _noisy(generator: np.random.Generator, numbers: Ints, bound: int) -> Ints:
    """Replace a share of the numbers by random numbers below a bound."""
    strays = generator.random(numbers.shape) < NOISE
    return np.where(strays, generator.integers(0, bound, numbers.shape), numbers)
