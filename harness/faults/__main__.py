"""Real trainers under faults: `python -m harness.faults --on slurm --faults 60 --seed 1`.

    python -m harness.faults [--on docker|slurm] [--faults 60] [--seed 1] [--kinds NAME,NAME...]

Runs of six training jobs, one run after another, while the scheduler, daemons, nodes and programs
are killed or stopped and storage is full. Each job must finish, with each epoch once and the losses
of undisturbed training bit for bit; no GPU or job may be used twice, nothing may be left, and the
records must pass their audit. Exits with 1 if anything was wrong, with 2 where it cannot
run. Needs root.

A fault counts if it met a running job, a call of the command that it replaced, or a job that Slurm
let it change; others are tried again.

The rest of a gang that lost a part may stop while its job has a new lease, which keeps the rest
from writing. Slurm, here without control groups, loses sight of processes when it is killed. So
there are two exceptions on it. The processes of leases that live when the controller, a node for
long or a `slurmstepd` is killed may share GPUs and jobs with later ones; a lease keeps them from
writing. And jobs that a controller knew when it was killed, and that it lists although the run and
all their processes have ended, are cancelled; their number is printed.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import dockerd, slurm
from harness.faults.docker import DockerMachinery
from harness.faults.jobs import workload
from harness.faults.slurm import SlurmMachinery
from harness.faults.trial import STORAGE_BYTES, Machinery, file_system, trial
from harness.markdown import markdown
from harness.slurm_files import TYPES
from predictor.errors import InputError

SPOOL_BYTES = 2**24


@contextmanager
def slurm_machinery() -> Iterator[SlurmMachinery]:
    """A Slurm whose nodes' daemons have a small file system."""
    with (
        file_system(SPOOL_BYTES) as spool,
        slurm.slurm(SlurmdSpoolDir=f"{spool}/%n") as lab,
    ):
        yield SlurmMachinery(lab, spool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--on", choices=("docker", "slurm"), default="slurm")
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="")
    options = parser.parse_args()
    on_slurm = options.on == "slurm"
    if lacking := (slurm if on_slurm else dockerd).missing():
        parser.error(lacking)
    with ExitStack() as stack:
        storage = stack.enter_context(file_system(STORAGE_BYTES))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        machinery: Machinery
        if on_slurm:
            machinery = stack.enter_context(slurm_machinery())
        else:
            machinery = DockerMachinery(stack.enter_context(dockerd.dockerd()))
        jobs = workload(gpu_types=(*dict.fromkeys(TYPES.values()),) if on_slurm else ("cpu",))
        kinds = options.kinds.split(",") if options.kinds else None
        try:
            found = trial(machinery, storage, folder, jobs, options.faults, options.seed, kinds)
        except InputError as error:
            parser.error(str(error))
        log = (folder / "log").read_text()
    rows = [[kind, str(number)] for kind, number in sorted(found.injected.items())]
    print(markdown(["Fault", "Number"], rows), end="")
    print(f"{found.injected.total()} faults in {found.runs} runs.")
    if isinstance(machinery, SlurmMachinery):
        print(f"Cancelled jobs that a killed controller knew: {len(machinery.cancelled)}.")
    print("\n".join(found.broken) or "Nothing was wrong.")
    if found.broken:
        print(log[-5000:], file=sys.stderr)
    sys.exit(bool(found.broken))


if __name__ == "__main__":
    main()
