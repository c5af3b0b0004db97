"""Images that jobs name: which are allowed, and which one a job resumes with."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from containers.docker.daemon import Refused
from containers.docker.fleet import Fleet
from containers.docker.folder import replace_file
from containers.docker.nodes import Nodes
from predictor.errors import InputError
from predictor.job import JobSpec

REMEDY = "add it to images in the cluster file, or give one that is there"


def may_run(nodes: Nodes, spec: JobSpec) -> bool:
    """Return whether a cluster allows a job's image: the node's own, or a listed one."""
    return not spec.image or any(fnmatchcase(spec.image, form) for form in nodes.images)


def check_images(nodes: Nodes, jobs: Iterable[JobSpec]) -> None:
    """Refuse jobs whose image is not allowed, or whose secrets are missing.

    Raises:
        InputError: A job is refused.
    """
    for spec in jobs:
        if not may_run(nodes, spec):
            problem = f"{spec.image} is none of the images that jobs may name here"
            raise InputError(f"job {spec.job_id}, image", problem, REMEDY)
        if spec.options.secrets and nodes.secrets is None:
            problem = "the cluster has none"
            remedy = "leave them out, or give it a folder of secrets in its cluster file"
            raise InputError(f"job {spec.job_id}, secrets", problem, remedy)


def find_image(fleet: Fleet, nodes: Nodes, run: str, spec: JobSpec, places: Iterable[int]) -> str:
    """Return the id of a job's own image, fixed at its first start; empty without one.

    The first start saves the id beside the job's folder, where no container can write. `places`
    are the indices of the nodes on which the job starts.

    Raises:
        NodeGone: A node does not answer.
        Refused: A node lacks the image, has a different one of that name, or it has volumes.
        OSError: The id cannot be saved.
    """
    if not spec.image:
        return ""
    noted = _noted(nodes, run, spec.job_id)
    began_with = noted.read_text() if noted.exists() else ""
    for place in places:
        found = fleet.image(place, spec.image)
        began_with = began_with or found
        if found != began_with:
            try:
                fleet.image(place, began_with)
            except Refused:
                raise Refused(
                    f"image {spec.image} of node {nodes.nodes[place].name} is {found}, not the one "
                    f"that the job began with: load {began_with}"
                ) from None
    if not noted.exists():
        noted.parent.mkdir(parents=True, exist_ok=True)
        replace_file(noted, began_with)
    return began_with


def _noted(nodes: Nodes, run: str, job_id: int) -> Path:
    return nodes.folder(run, job_id).with_suffix(".image")
