"""Where a simulation's jobs come from, as plain parameters."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from predictor.errors import InputError
from warehouse.generator import generate_workload
from warehouse.trace import read_workload
from warehouse.workload import Arrivals, Workload


@dataclass(frozen=True)
class Source:
    """A trace with its tables, or what to generate.

    Attributes:
        trace: Job trace; without it, jobs are generated.
        profile: Throughput table of the trace.
        regimes: GNS regimes of the trace.
        jobs: How many jobs to generate.
        arrivals: When generated jobs arrive.
        seed: Seed of the generator.
    """

    trace: Path | None = None
    profile: Path | None = None
    regimes: Path | None = None
    jobs: int = 60
    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 0

    def open(self) -> Workload:
        """Read or generate the jobs.

        Raises:
            InputError: A file or an option is wrong.
        """
        if self.trace is not None:
            if self.profile is None:
                raise InputError("--profile", "missing", "a trace needs its throughput table")
            return read_workload(self.trace, self.profile, self.regimes)
        if self.profile is not None or self.regimes is not None:
            raise InputError("--trace", "missing", "a profile or regimes belong to a trace")
        if self.seed < 0:
            raise InputError("--seed", f"{self.seed} is negative", "give 0 or more")
        return generate_workload(
            self.jobs, rng=np.random.default_rng(self.seed), arrivals=Arrivals(self.arrivals)
        )
