"""Render a lease as a Slurm job, with pure functions that return plain data.

A lease is one job: a batch script that becomes the job's program, or for a gang on several nodes
a step with a program on each. A job gets as many GPUs of each node as its lease has there, unless
those are not equally many, which Slurm divides by itself; which ones is up to Slurm, too.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from containers.leasing.ends import STORAGE
from containers.leasing.engine import TERMINATED
from containers.slurm.cluster import SlurmCluster
from predictor.errors import InputError
from predictor.image import find_code
from predictor.job import JobSpec
from predictor.options import INDEX
from predictor.throughput import UNTYPED

BEGUN = "begun"
"""File in a job's folder that names the last lease whose program began."""

PART = "part-"
"""Prefix of the files in a job's folder that say how the parts of a gang over nodes ended, by rank:
the lease's name and an exit code. Slurm itself tells it once all parts have ended, and never of one
whose `slurmstepd` was killed."""

_MARK = "shockwave-lease"
_NUMBERS = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_COMMENT = re.compile(rf"{_MARK}:([A-Za-z0-9_.-]+):(\d+):(\d+):(\d+):({_NUMBERS})", re.A)


class LeaseMark(NamedTuple):
    """A lease, as the comment of its Slurm job says.

    Attributes:
        number: Round in which it began.
        attempt: 1 for its first job; a round that is dispatched again may need another one.
    """

    run: str
    job_id: int
    number: int
    attempt: int
    gpus: tuple[int, ...]

    @property
    def job_name(self) -> str:
        """Name of its Slurm job, a function of run, job and round."""
        return f"shockwave-{self.run}-job-{self.job_id}-round-{self.number}"

    @property
    def lease(self) -> str:
        """Its own name."""
        return f"{self.job_name}.{self.attempt}"

    @property
    def comment(self) -> str:
        """The comment of its Slurm job, by which it is known after a restart."""
        numbers = f"{self.job_id}:{self.number}:{self.attempt}"
        return f"{_MARK}:{self.run}:{numbers}:{_write_numbers(self.gpus)}"


@dataclass(frozen=True, slots=True)
class LeaseScript:
    """The Slurm job of a lease: its lease, the options of `sbatch`, and its script."""

    mark: LeaseMark
    options: tuple[str, ...]
    script: str


def read_mark(comment: str) -> LeaseMark | None:
    """Read a job's comment; None if it is not that of a lease."""
    if not (found := _COMMENT.fullmatch(comment)):
        return None
    run, job_id, number, attempt, gpus = found.groups()
    return LeaseMark(run, int(job_id), int(number), int(attempt), _read_numbers(gpus))


def log_file(folder: Path) -> Path:
    """Return the file of a job's output, beside its folder."""
    return folder.with_suffix(".log")


def check_needs(site_trainer: Sequence[str], jobs: Iterable[JobSpec]) -> None:
    """Refuse jobs that name what Slurm does not give them, or have nothing to run.

    Raises:
        InputError: A job is refused.
    """
    for spec in jobs:
        options = spec.options
        named = {
            "image": spec.image,
            "secrets": options.secrets,
            "network": options.network,
            "volumes": options.volumes,
            "code": find_code(spec.environment),
        }
        for name, value in named.items():
            if value:
                remedy = "leave it out: jobs on Slurm run as commands in the nodes' own system"
                if name == "image":
                    remedy += ", such as apptainer exec"
                raise InputError(f"job {spec.job_id}, {name}", "has no meaning on Slurm", remedy)
        if not spec.command and spec.timed:
            raise InputError(f"job {spec.job_id}, command", "is missing", "give what it runs")
        if not spec.command and not site_trainer:
            remedy = "give the job a command, or the cluster file a trainer under [slurm]"
            raise InputError(f"job {spec.job_id}, command", "is missing", remedy)


def render(cluster: SlurmCluster, mark: LeaseMark, spec: JobSpec) -> LeaseScript:
    """Return the Slurm job of a lease."""
    site, places = cluster.site, cluster.by_node(mark.gpus)
    folder = cluster.folder(mark.run, spec.job_id)
    counts = [len(local) for local in places.values()]
    gpu_type = cluster.nodes[next(iter(places))].gpu_type
    kind = "" if gpu_type == UNTYPED else f"{gpu_type}:"
    gang = len(places) > 1
    grace = math.ceil(site.grace_seconds)
    options = [
        *site.options,
        *([f"--partition={site.partition}"] if site.partition else []),
        *([f"--cpus-per-gpu={site.cpus_per_gpu}"] if site.cpus_per_gpu else []),
        *([f"--mem-per-gpu={site.memory_per_gpu // 1024}K"] if site.memory_per_gpu else []),
        f"--job-name={mark.job_name}",
        f"--comment={mark.comment}",
        # Of two submissions after an unclear answer the second one waits, and is cancelled.
        "--dependency=singleton",
        "--no-requeue",
        f"--nodes={len(places)}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(cluster.nodes[place].name for place in places)}",
        # Slurm divides GPUs by itself if the nodes of a gang do not get equally many.
        f"--gres=gpu:{kind}{counts[0]}" if len({*counts}) == 1 else f"--gpus={kind}{sum(counts)}",
        # Where Slurm ends it at a time limit, it still saves a checkpoint.
        f"--signal={'' if gang else 'B:'}TERM@{grace}",
        f"--chdir={folder}",
        f"--output={log_file(folder)}",
        "--open-mode=append",
        # The scheduler's own variables are none of the job's business.
        "--export=PATH,HOME,USER,LANG",
    ]
    return LeaseScript(
        mark, tuple(options), _write_script(cluster, mark.lease, folder, counts, spec)
    )


def _write_script(
    cluster: SlurmCluster, name: str, folder: Path, counts: Sequence[int], spec: JobSpec
) -> str:
    site = cluster.site
    timed = spec.command or spec.timed
    program = [*spec.command] if timed else [*site.trainer, str(folder)]
    environment = dict(text.split("=", 1) for text in spec.environment)
    task = spec.options.task
    if task.tasks:
        environment[INDEX] = str(task.index)
    environment |= {"SHOCKWAVE_JOB_FOLDER": str(folder), "SHOCKWAVE_LEASE": name}
    if site.datasets:
        environment["SHOCKWAVE_DATA_FOLDER"] = str(site.datasets)
    lines = [
        "#!/bin/sh",
        "# It runs once, even if it is submitted twice or requeued, and only for the last lease.",
        f"name={quote(name)} folder={quote(str(folder))}",
        'test "$(cat "$folder/lease")" = "$name" &&',
        f'    test "$(cat "$folder/{BEGUN}" 2>&-)" != "$name" || exit {TERMINATED}',
        # What came before may not have ended its line.
        "printf '\\n--- %s\\n' \"$name\"",
        *(f"export {key}={quote(value)}" for key, value in environment.items()),
    ]
    words = " ".join(map(quote, program))
    begin = f'echo "$SHOCKWAVE_LEASE" >"$SHOCKWAVE_JOB_FOLDER/{BEGUN}" || exit {STORAGE}'
    if len(counts) == 1:
        lines.append(f"export LOCAL_WORKERS={counts[0]}")
        return "\n".join([*lines, begin, f"exec {words}", ""])
    # Slurm chooses how many GPUs each node of an uneven gang gives.
    its = '$(echo "$CUDA_VISIBLE_DEVICES" | tr , " " | wc -w)'
    local = counts[0] if len({*counts}) == 1 else its
    each = f"""test "$SLURM_NODEID" != 0 || {begin}
export NODE_RANK="$SLURM_NODEID" LOCAL_WORKERS={local}
trap : TERM
"$@"
code=$?
cd "$SHOCKWAVE_JOB_FOLDER" && test "$(cat lease)" = "$SHOCKWAVE_LEASE" &&
    echo "$SHOCKWAVE_LEASE $code" >"{PART}$NODE_RANK"
exit "$code\""""
    lines += [
        f'export MASTER_ADDR="$(hostname)" MASTER_PORT={site.rendezvous_port} NNODES={len(counts)}',
        "exec srun --export=ALL --ntasks-per-node=1 --kill-on-bad-exit=0 \\",
        f"    sh -c {quote(each)} sh {words}",
        "",
    ]
    return "\n".join(lines)


def _write_numbers(numbers: Sequence[int]) -> str:
    """Write ascending numbers such as 0, 1, 2 and 5 as `0-2,5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def _read_numbers(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)
