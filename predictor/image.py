"""Image, command and environment of a job's containers: what a job may request."""

import re
from collections.abc import Sequence

from predictor.errors import InputError

DIGEST = "sha256:[0-9a-f]{64}"
"""Id of an image: a digest of its contents."""
IMAGE = re.compile(
    rf"{DIGEST}|[a-z0-9][a-z0-9._-]*(:[0-9]{{1,5}})?(/[a-z0-9][a-z0-9._-]*)*"
    rf"(:\w[\w.-]{{0,127}})?(@{DIGEST})?",
    re.ASCII,
)
"""An image by name, tag or digest, in Docker's notation."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Name of a submitted job. Jobs of logs may have any label."""
LONGEST_LABEL = 100
"""Longest name in characters. An engineering bound."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Name of an environment variable (POSIX)."""
OURS = re.compile(
    r"(SHOCKWAVE|NVIDIA)_.*|CUDA_VISIBLE_DEVICES"
    r"|MASTER_(ADDR|PORT)|NNODES|NODE_RANK|LOCAL_WORKERS"
)
"""Variables that the scheduler sets. NVIDIA's variables choose a container's GPUs, CUDA's those of
a Slurm job."""
CODE = "SHOCKWAVE_CODE"
"""Variable of a job with code of its own: where the code came from, and the SHA-256 of its archive,
as in `train.tar.gz#sha256=…` and `git+https://host/repository@commit#sha256=…`."""
STORED_CODE = re.compile(r"(?P<origin>[^\s#]{1,1000})#sha256=(?P<digest>[0-9a-f]{64})")
"""Value of `CODE`."""
LONGEST_IMAGE = 255
"""Longest image in characters, with tag and digest. An engineering bound: Docker applies the same
bound to the repository's name alone (`NameTotalLengthMax` of its package `reference`)."""
LONGEST = 2**15
"""Longest argument or variable in characters. Linux accepts four times as many bytes."""
MOST = 1_000
"""Most arguments, and most variables. An engineering bound."""


def check_launch(
    place: str, name: str, image: str, command: Sequence[str], environment: Sequence[str]
) -> None:
    """Refuse what cannot be launched, or would change what a container may do.

    Name and image may be empty; variables are `NAME=VALUE`. Errors name `place`, the job.

    Raises:
        InputError: A field is invalid.
    """
    if not (name.isprintable() and len(name) <= LONGEST_LABEL):
        remedy = f"use printable text of at most {LONGEST_LABEL} characters"
        raise InputError(f"{place}, name", f"{name[:80]!r} is not a name", remedy)
    if image and not (len(image) <= LONGEST_IMAGE and IMAGE.fullmatch(image)):
        raise InputError(
            f"{place}, image", f"{image[:80]!r} is not an image", "give one like python:3-slim"
        )
    for field, texts in (("command", command), ("environment", environment)):
        if len(texts) > MOST:
            raise InputError(f"{place}, {field}", f"has more than {MOST:,} entries", "give fewer")
        for text in texts:
            if len(text) > LONGEST or "\0" in text or not _encodable(text):
                raise InputError(
                    f"{place}, {field}",
                    f"{text[:40]!r} is too long, or no text",
                    f"give at most {LONGEST:,} characters of Unicode other than NUL",
                )
    names = [text.partition("=")[0] for text in environment]
    for text, variable in zip(environment, names, strict=True):
        if "=" not in text or not VARIABLE.fullmatch(variable):
            raise InputError(
                f"{place}, environment", f"{text[:80]!r} is not NAME=VALUE", "correct the name"
            )
        if variable == CODE:
            _check_code(place, text.partition("=")[2])
        elif OURS.fullmatch(variable):
            raise InputError(
                f"{place}, environment", f"{variable} is set by the scheduler", "leave it out"
            )
        if names.count(variable) > 1:
            raise InputError(f"{place}, environment", f"{variable} is there twice", "give it once")


def find_code(environment: Sequence[str]) -> str:
    """Return the SHA-256 of the archive of a job's code; empty without one."""
    for text in environment:
        variable, _, value = text.partition("=")
        if variable == CODE and (found := STORED_CODE.fullmatch(value)):
            return found["digest"]
    return ""


def _check_code(place: str, value: str) -> None:
    if not STORED_CODE.fullmatch(value):
        problem = f"{value[:80]!r} is not stored by a service"
        remedy = "submit the job with shockwave submit, which stores it"
        raise InputError(f"{place}, code", problem, remedy)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
