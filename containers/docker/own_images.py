"""What jobs name: whether they may, and which image a job resumes with."""

from collections.abc import Iterable
from contextlib import closing, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from containers.docker.fleet import Fleet
from containers.docker.nodes import Nodes
from containers.docker.rendering import job_network, job_volumes, secret_files
from containers.leasing.code import check_stored
from containers.leasing.engine import Lacking, NodeGone, Refused, Unstartable
from containers.leasing.folder import replace_file
from predictor.errors import InputError
from predictor.image import find_code
from predictor.job import JobSpec

REMEDY = "add it to images in the cluster file, or give one that is there"


def may_run(nodes: Nodes, spec: JobSpec) -> bool:
    """Return whether a cluster allows a job's image: the node's own, or a listed one."""
    return not spec.image or any(fnmatchcase(spec.image, form) for form in nodes.images)


def check_needs(nodes: Nodes, jobs: Iterable[JobSpec]) -> None:
    """Refuse jobs that name what is not meant for them, or lack an image or a secret.

    Raises:
        InputError: A job is refused.
    """
    for spec in jobs:
        if not may_run(nodes, spec):
            problem = f"{spec.image} is none of the images that jobs may name here"
            raise InputError(f"job {spec.job_id}, image", problem, REMEDY)
        if spec.timed and not spec.image:
            remedy = "give the image of its containers"
            raise InputError(f"job {spec.job_id}, image", "is missing", remedy)
        if spec.options.secrets and nodes.secrets is None:
            problem = "the cluster has none"
            remedy = "leave them out, or give it a folder of secrets in its cluster file"
            raise InputError(f"job {spec.job_id}, secrets", problem, remedy)
        job_network(nodes, spec)
        job_volumes(nodes, spec)


def check_present(nodes: Nodes, spec: JobSpec) -> None:
    """Refuse a job whose image, secret or code no node has, as far as is known from here.

    Nodes are asked for images, and whether they can be pulled if the cluster does that. Files of
    secrets are looked for on this machine, if it is the host of all nodes.

    Raises:
        InputError: The job is refused.
    """
    if digest := find_code(spec.environment):
        check_stored(nodes.storage, spec.tenant, digest)
    if spec.image:
        with closing(Fleet(nodes, "")) as fleet:

            def lacks(node: int) -> str:
                try:
                    try:
                        fleet.image(node, spec.image)
                    except Lacking:
                        if not nodes.pull:
                            raise
                        fleet.find_in_registry(node, spec.image)
                except NodeGone:
                    return ""  # it may have the image
                except Refused as error:
                    return str(error)
                return ""

            places = range(len(nodes.nodes))
            reasons = fleet.map("look", lacks, places, lambda node: node)
        if all(reasons):
            remedy = "then submit the job again"
            raise InputError("image", f"no node can start it: {reasons[0]}", remedy)
    if all(node.endpoint.startswith("unix://") for node in nodes.nodes):
        for path, name in secret_files(nodes, spec):
            with suppress(PermissionError):  # only the administrator may know
                if not path.exists():
                    remedy = f"ask an administrator to put it in {path.parent}"
                    raise InputError("secrets", f"there is no secret {name!r}", remedy)


def find_image(fleet: Fleet, nodes: Nodes, run: str, spec: JobSpec, places: Iterable[int]) -> str:
    """Return the id of a job's own image, fixed at its first start; empty without one.

    The first start saves the id beside the job's folder, where no container can write. `places`
    are the indices of the nodes on which the job starts.

    Raises:
        NodeGone: A node does not answer.
        Unstartable: A node lacks the image, has a different one of that name, or it has volumes.
        OSError: The id cannot be saved.
    """
    if not spec.image:
        return ""
    noted = _noted(nodes, run, spec.job_id)
    began_with = noted.read_text() if noted.exists() else ""
    for place, found in _find_on(fleet, nodes, spec.image, places).items():
        began_with = began_with or found
        if found != began_with:
            try:
                fleet.image(place, began_with)
            except Refused:
                raise Unstartable(
                    f"image {spec.image} of node {nodes.nodes[place].name} is {found}, not the one "
                    f"that the job began with: load {began_with}"
                ) from None
    if not noted.exists():
        noted.parent.mkdir(parents=True, exist_ok=True)
        replace_file(noted, began_with)
    return began_with


def _find_on(fleet: Fleet, nodes: Nodes, image: str, places: Iterable[int]) -> dict[int, str]:
    """Return an image's id by node; where it is missing, begin to pull it if the cluster may."""
    found, problems = dict[int, str](), list[str]()
    for place in places:
        try:
            found[place] = fleet.image(place, image)
        except Lacking as error:
            problems.append(fleet.pull(place, image) if nodes.pull else str(error))
        except Refused as error:
            problems.append(str(error))
    if problems:
        raise Unstartable("; ".join(problems))
    return found


def _noted(nodes: Nodes, run: str, job_id: int) -> Path:
    return nodes.folder(run, job_id).with_suffix(".image")
