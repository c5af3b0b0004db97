"""Versions of container runtimes with known container escapes.

Each was checked against its advisory. Listed are only those that concern what Shockwave's jobs do,
or the administrators of their hosts.
"""

import math
import re
from dataclasses import dataclass

Version = tuple[float, float, float, float]
"""Major, minor and patch version, and the release candidate; infinity for a release."""


@dataclass(frozen=True, slots=True)
class Escape:
    """A known escape.

    Attributes:
        names: The CVE records.
        source: Its advisory.
        what: What it allows.
        fixed: The first fixed version of each release line with a fix, ascending.
        authorization: Whether only daemons with authorization plugins have it.
    """

    names: str
    source: str
    what: str
    fixed: tuple[str, ...]
    authorization: bool = False

    def concerns(self, version: str) -> bool:
        """Whether a version has it: by the fix of its release line, else by the last fix."""
        asked = parsed(version)
        fixes = [parsed(text) for text in self.fixed]
        mended = next((fix for fix in fixes if fix[:2] == asked[:2]), fixes[-1])
        return asked < mended


RUNC = (
    Escape(
        "CVE-2024-21626",
        "GHSA-xr7r-f8xq-vfvv",
        "a working directory leads out of the container",
        ("1.1.12",),
    ),
    Escape(
        "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
        "GHSA-9493-h29p-rfm2, GHSA-qw9x-cqr3-wc7r, GHSA-cgrx-mc8f-2prm",
        "an image can redirect what runc mounts and writes",
        ("1.2.8", "1.3.3", "1.4.0-rc.3"),
    ),
)
ENGINE = (
    Escape(
        "CVE-2024-41110, CVE-2026-34040",
        "GHSA-v23v-6jw2-98fq, GHSA-x744-4wpc-v9h2",
        "requests pass authorization plugins unseen",
        ("29.3.1",),
        authorization=True,
    ),
    Escape(
        "CVE-2026-41567",
        "GHSA-x86f-5xw2-fm2r",
        "docker cp into a container runs its programs on the host",
        ("29.5.1",),
    ),
)
TOOLKIT = (
    Escape(
        "CVE-2024-0132",
        "GHSA-mjjw-553x-87pq",
        "an image reaches the host's files while it starts",
        ("1.16.2",),
    ),
    Escape(
        "CVE-2025-23359",
        "GHSA-4hmh-pm5p-9j7j",
        "the same, past its first fix",
        ("1.17.4",),
    ),
    Escape(
        "CVE-2025-23266",
        "NVIDIA security bulletin 5659",
        "an image's library is loaded by a hook that runs as root on the host",
        ("1.17.8",),
    ),
    Escape(
        "CVE-2026-24260",
        "NVIDIA security bulletin 5850",
        "an image reaches the host while it starts",
        ("1.19.1",),
    ),
)
"""Escapes of the NVIDIA container toolkit, whose version a daemon does not report."""


def parsed(version: str) -> Version:
    """A version such as `1.4.0-rc.3`; what a distribution adds to it is left out.

    Raises:
        ValueError: It is no version.
    """
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)(?:-rc\.?(\d+))?", version)
    if found is None:
        raise ValueError(f"{version!r} is no version")
    major, minor, patch, candidate = found.groups()
    return float(major), float(minor), float(patch), float(candidate or math.inf)
