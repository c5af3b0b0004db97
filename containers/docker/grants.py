"""Networks and volumes of a cluster that jobs may name."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from predictor.errors import InputError

HOST = "host"
"""Docker's name of a host's own network."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Something that jobs get only if they name it.

    Attributes:
        name: Its name in jobs.
        tenants: Patterns (`fnmatch`) of the tenants whose jobs may name it.
    """

    name: str
    tenants: tuple[str, ...] = ("*",)

    def allows(self, tenant: str) -> bool:
        """Return whether a tenant's jobs may name it."""
        return any(fnmatchcase(tenant, form) for form in self.tenants)


@dataclass(frozen=True, slots=True)
class JobNetwork(Grant):
    """A network of jobs.

    Attributes:
        docker: Its name in Docker, on each node; `host` for the network of the host itself.
        proxy: URL of the HTTP proxy behind which it reaches others; empty without one.
        rdma: Whether containers get the host's InfiniBand devices, and may lock memory for them.
    """

    docker: str = ""
    proxy: str = ""
    rdma: bool = False


@dataclass(frozen=True, slots=True)
class Volume(Grant):
    """A folder of jobs, at the same path on each node.

    Attributes:
        writable: Whether jobs may write to it.
    """

    path: Path = Path()
    writable: bool = False


Granted = TypeVar("Granted", bound=Grant)


def find_grant(
    place: str, grants: tuple[Granted, ...], name: str, tenant: str, kind: str
) -> Granted:
    """Return what a tenant's job names; `kind` is the word for it, such as `network`.

    Raises:
        InputError: There is none of that name, or not for this tenant; the error names `place`.
    """
    allowed = [grant for grant in grants if grant.allows(tenant)]
    for grant in allowed:
        if grant.name == name:
            return grant
    names = ", ".join(grant.name for grant in allowed)
    remedy = f"name one of {names}" if names else f"leave it out, or add a {kind} to the cluster"
    raise InputError(place, f"{name!r} is no {kind} for jobs of tenant {tenant!r} here", remedy)
