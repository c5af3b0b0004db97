"""The trade-off of mean JCT against the longest jobs and the worst ρ.

    python -m benchmarks.front [--gpus 16] [--loads 0.9,1.1] [--seeds 20-23] [--jobs 200]
        [--workers 2] [--markdown]

Streams of `benchmarks.loads` under `fifo`, `srtf` and `slack`, under `shockwave` with other values
of the parameters that trade mean JCT for the longest jobs and for the worst ρ, and under an oracle:
shortest remaining time first, but no job later than a multiple of FIFO's 99 % JCT, with all run
times known. The 99 % JCT of 200 jobs is that of the third longest, so that giving up the two
longest, which the oracle also knows, is the cheapest way to it. Figures are means over seeds,
relative to the least of `fifo`, `srtf` and `slack`.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import fmean

from benchmarks.loads import Case, stream, streamed
from flows.cli.output import print_table
from harness.markdown import markdown
from predictor.basis import Basis
from solver.plan import ActiveJob, Plan, Situation
from solver.policies import POLICIES
from solver.policies.listed import run_list
from tasks.record import Parameter, Settings, make_pool

SHOWN = ("jct_s", "jct_p99_s", "worst_rho")
YARDSTICKS = ("fifo", "srtf", "slack")


@dataclass(frozen=True)
class Bounded:
    """Shortest remaining time first, but none later than a bound on JCT that is known beforehand.

    Attributes:
        bound: The bound, in seconds.
        one: Id of an excepted job.
        other: Id of another excepted job.
        reach: Slack below which a job goes first, in seconds.
        favour: Taken off the rank of running jobs, in seconds: two restarts and some rounds.
    """

    name = "bounded"
    summary = "shortest remaining time first, but none later than a bound known beforehand"
    source = "benchmarks/front.py"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    several_pools = True

    bound: float = 1e12
    one: float = 1e12
    other: float = 1e12
    reach: float = 600.0
    favour: float = 240.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""

        def rank(job: ActiveJob) -> tuple[bool, float, int]:
            left = job.run_time(job.own).remaining
            held = self.favour * bool(job.gpus)
            slack = job.spec.arrival_seconds + self.bound - situation.clock_seconds - left
            late = slack < self.reach and job.spec.job_id not in (self.one, self.other)
            return not late, (slack if late else left) - held, job.job_id

        return run_list(self.name, situation, sorted(situation.jobs, key=rank))


POLICIES[Bounded.name] = Bounded  # for this process: no command offers it


@dataclass(frozen=True)
class Rule:
    """A policy with parameters.

    Attributes:
        label: Its name in the table.
        policy: The policy.
        parameters: Names and values.
        times: Bound as a multiple of FIFO's 99 % JCT, for `Bounded`; else 0.
        excepted: Longest jobs that are excepted, at most two.
    """

    label: str
    policy: str
    parameters: tuple[tuple[str, float], ...] = ()
    times: float = 0.0
    excepted: int = 0


RULES = (
    *(Rule(f"`{name}`", name) for name in (*YARDSTICKS, "shockwave")),
    *(
        Rule(f"`shockwave`, `{name}={value:g}`", "shockwave", ((name, value),))
        for name, value in (
            ("overdue", 2.25),
            ("overdue", 1.75),
            ("fairness", 0.5),
            ("fairness", 1.0),
            ("favour", 2.5),
            ("tail", 0.4),
            ("tail", 0.7),
            ("tail", 1.5),
        )
    ),
    *(
        Rule(f"none later than {times:g} × FIFO's 99 %" + but, "bounded", (), times, excepted)
        for times, excepted, but in (
            (1.04, 0, ""),
            (1.04, 2, ", two excepted"),
            (1.2, 2, ", two excepted"),
        )
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--gpus", type=int, default=16)
    parser.add_argument("--loads", default="0.9,1.1")
    parser.add_argument("--seeds", default="20-23", help="FIRST-LAST")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--markdown", action="store_true", help="print the table of the docs")
    asked = parser.parse_args()
    first, last = map(int, asked.seeds.split("-"))
    loads = [float(load) for load in asked.loads.split(",")]
    figures: dict[tuple[str, float], dict[str, float]] = {}
    with ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn")) as pool:
        seeds = range(first, last + 1)
        cases = [
            Case(rule.policy, asked.gpus, load, seed, asked.jobs)
            for rule in RULES
            for load in loads
            for seed in seeds
        ]
        rules = [rule for rule in RULES for _ in loads for _ in seeds]
        results = pool.map(run, rules, cases)
        for rule in RULES:
            for load in loads:
                runs = [next(results) for _ in seeds]
                means = {name: fmean(run[name] for run in runs) for name in SHOWN}
                figures[rule.label, load] = means
    heads, rows = ["Rule"], list(shown(figures, loads))
    for load in loads:
        heads += [f"{load:g}: mean JCT", "99 % JCT", "worst ρ"]
    if asked.markdown:
        print(markdown(heads, rows), end="")
    else:
        print_table(heads, rows)


def shown(
    figures: dict[tuple[str, float], dict[str, float]], loads: list[float]
) -> Iterator[list[str]]:
    """The rows of the table."""
    for rule in RULES:
        row = [rule.label]
        for load in loads:
            least = [figures[f"`{name}`", load] for name in YARDSTICKS]
            for name in SHOWN:
                best = min(means[name] for means in least)
                row.append(f"{figures[rule.label, load][name] / best:.3f}")
        yield row


def run(rule: Rule, case: Case) -> dict[str, float]:
    """Simulate a stream under a rule; its figures."""
    workload, pools = stream(case), make_pool(case.gpus, min(case.gpus, 8))
    if not rule.times:
        parameters = tuple(Parameter(*named) for named in rule.parameters)
        return streamed(workload, Settings(rule.policy, pools, parameters=parameters))
    ours = streamed(workload, Settings("fifo", pools))
    alone = {truth.job_id: truth.isolated_seconds for truth in workload.truths}
    excepted = sorted(alone, key=alone.__getitem__)[len(alone) - rule.excepted :]
    bound = rule.times * ours["jct_p99_s"]
    names = ("bound", "one", "other")
    parameters = tuple(map(Parameter, names, (bound, *map(float, excepted))))
    return streamed(
        workload, Settings(rule.policy, pools, parameters=parameters, forecasts=Basis.ORACLE)
    )


if __name__ == "__main__":
    main()
