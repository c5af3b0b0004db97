"""Real training jobs under a scheduler, containers and a Docker daemon that are killed at random.

    python -m benchmarks.faults [--faults 200] [--seed 0] [--json]

Runs of six small jobs on two nodes of two emulated GPUs, one after another, until FAULTS faults
had an effect (a fault without a target is tried again): the scheduler killed (SIGKILL) at
each boundary of a round's steps and at any moment, containers killed, removed and hung, the daemon
restarted and killed, telemetry torn and garbled, the storage filled up. SEED determines the kind,
time and target of each fault; the state that it meets depends on the machine.

Watched all the time: no GPU in two containers, no job in two leases at once, and the scheduler
makes records. At the end of each run: every job trained its last epoch, each epoch was recorded
once, in order, the run's audit finds nothing, no container or network is left, and each job's
losses are those of the same job left alone, bit for bit, of all its epochs if nobody wrote into
its telemetry. Exit code 1 if anything of that does not hold. Needs root, dockerd and iptables.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.faults.jobs import JOBS, workload
from benchmarks.faults.trial import STORAGE_BYTES, file_system, trial
from harness.dockerd import dockerd, missing
from predictor.errors import InputError, ShockwaveError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if lacking := missing():
        raise InputError("benchmarks.faults", lacking, "run it where a daemon can be started")
    started = time.monotonic()
    with (
        file_system(STORAGE_BYTES) as storage,  # before the daemon, which has to see it
        dockerd() as daemon,
        tempfile.TemporaryDirectory() as folder,
    ):
        outcome = trial(daemon, storage, Path(folder), workload(), asked.faults, asked.seed)
    figures = {
        "faults": outcome.injected.total(),
        "runs": outcome.runs,
        "jobs": outcome.runs * len(JOBS),
        "broken": len(outcome.broken),
        "seconds": round(time.monotonic() - started),
    }
    if asked.json:
        print(json.dumps({**figures, "kinds": outcome.injected, "what": outcome.broken}))
    else:
        for kind, count in sorted(outcome.injected.items()):
            print(f"{kind:28} {count:4}")
        print(", ".join(f"{name} {value}" for name, value in figures.items()))
        print("\n".join(outcome.broken))
    return bool(outcome.broken)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ShockwaveError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
