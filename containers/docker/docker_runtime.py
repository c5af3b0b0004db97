"""Docker as the engine of leases, and the runtime of jobs in its containers."""

from collections.abc import Iterable, Sequence

from containers.clock import RunClock
from containers.docker.fleet import Fleet
from containers.docker.nodes import Nodes, nvidia_id
from containers.docker.own_images import check_needs, find_image
from containers.docker.rendering import (
    code_folders,
    job_network,
    job_volumes,
    limit_processors,
    render,
    secret_files,
)
from containers.docker.usage import gpu_share
from containers.leasing.engine import Attempt, Found, Refused, Unstartable
from containers.leasing.runtime import LeasedRuntime
from containers.runtime import Lease, ResumePoint, RuntimeFactory, Terms
from predictor.job import JobSpec


class DockerEngine(Fleet):
    """The daemons of a cluster's nodes, as the `Engine` of one run's leases."""

    program = "container"

    def check(self, jobs: Iterable[JobSpec]) -> None:
        """See `Engine.check`."""
        check_needs(self.nodes, jobs)

    def prepare(self, number: int, lease: Lease, spec: JobSpec, *, shared: bool) -> Attempt:
        """See `Engine.prepare`."""
        places = self.nodes.by_node(lease.gpus)
        image = find_image(self, self.nodes, self.run, spec, places)
        parts = render(self.nodes, self.run, number, lease, spec, image, shared=shared)
        joined = job_network(self.nodes, spec)
        if len(places) > 1 and not (joined or parts[0].network or self.nodes.network):
            raise Refused("its gang spans daemons, and the cluster names no network for that")
        named = [path for path, _ in secret_files(self.nodes, spec)]
        named += code_folders(self.nodes, spec)
        named += [volume.path for volume in job_volumes(self.nodes, spec)]
        needs = (*map(str, named), *([f"network {joined.docker}"] if joined else []))
        return Attempt(parts[0].name, image, parts, needs)

    def start(self, attempt: Attempt) -> None:
        """See `Engine.start`; a daemon that lacks a file or network names it in its refusal."""
        try:
            for part in attempt.parts:
                self.create(part)
        except Refused as error:
            if any(need in str(error) for need in attempt.needs):
                raise Unstartable(str(error)) from None
            raise

    def divide(self, found: Found, *, shared: bool) -> bool:
        """See `Engine.divide`."""
        local = self.nodes.by_node(found.gpus)[found.node]
        node = self.nodes.nodes[found.node]
        return self.limit(found, limit_processors(self.nodes, node, local, shared=shared))

    def gpu_share(self, gpus: Sequence[int]) -> float:
        """See `Engine.gpu_share`; only this machine's GPUs are known."""
        local = [
            own
            for place, on_node in self.nodes.by_node(gpus).items()
            for node in [self.nodes.nodes[place]]
            if node.endpoint.startswith("unix://")
            for gpu in on_node
            if (own := nvidia_id(node.gpus[gpu].device))
        ]
        return gpu_share(local) if local else 0.0


class DockerRuntime(LeasedRuntime):
    """A `Runtime` of Docker containers, opened by a `DockerFactory`."""

    def __init__(
        self, nodes: Nodes, clock: RunClock, terms: Terms, resume_point: ResumePoint
    ) -> None:
        self._docker = DockerEngine(nodes, terms.run)
        super().__init__(self._docker, nodes, clock, terms, resume_point)

    @property
    def nodes(self) -> Nodes:
        """Nodes of the cluster."""
        return self._docker.nodes

    def grow(self, nodes: Nodes) -> None:
        """Add nodes after the present ones."""
        self._docker.grow(nodes)
        self._cluster = nodes


class DockerFactory(RuntimeFactory):
    """The nodes of a cluster of Docker hosts, and the run's clock."""

    live = True

    def __init__(self, nodes: Nodes, clock: RunClock) -> None:
        self._nodes, self._clock = nodes, clock

    def open(self, terms: Terms, resume_point: ResumePoint) -> DockerRuntime:
        """See `RuntimeFactory.open`; ends the run's containers that have no lease."""
        return DockerRuntime(self._nodes, self._clock, terms, resume_point)
