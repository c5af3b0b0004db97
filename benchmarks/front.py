"""The front of makespan and worst ρ, and where policies are.

    python -m benchmarks.front [WORKLOADS] [--policies NAMES] [--sweep POLICY NAME=VALUE,VALUE,…]
        [--plot FILE] [--markdown]

Workloads have the names of `benchmarks.workloads`; by default they are the public traces. The front
is the least worst ρ that a fluid can have, by makespan. A linear program decides how much of each
job the fluid does in each interval between arrivals and due dates. A job runs at most at its
isolated speed, and all jobs together use at most all GPUs. All but 0.05 % of the work has to be
done by the due dates

    min(arrival + ρ (fair finish - arrival + a), M × limit)

The fair finish is a job's end in the even cluster. a is a round and a restart, as in `measure_rho`
of `solver.even_cluster`: ρ is the same for the front and for policies. The limit is a makespan
that no schedule can beat: none ends before the last job could end alone, or before all GPUs could
do the work that arrives after any moment. Work that goes from jobs to intervals is a flow, so a
maximum flow solves the program. Bisection finds the least ρ for which it is feasible.

The front is a lower bound: no policy is below it. The fluid knows all arrivals and run times, has
no rounds and no restarts, and runs any part of a gang. The front does not say how near it a policy
can come that knows only the past.
"""

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from benchmarks.drawing import label_points, new_figure, save
from benchmarks.loads import find_ends, find_fair_times
from benchmarks.market import limit
from benchmarks.workloads import TRACES, gpus_of, open_workload
from flows.cli.output import print_table
from harness.markdown import markdown
from predictor.arrays import Floats
from tasks.record import Parameter, Settings, make_pool
from tasks.sources import Workload
from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.report.figure import COLOURS

POLICIES = "shockwave,slack,srtf,srtf-gpu,themis,gavel,tiresias-las,fifo"
"""Policies by default."""

MAKESPANS = (1.02, 1.04, 1.06, 1.10, 1.15, 1.25)
"""Makespans of the table, over the limit."""

UNMET = 0.0005
"""Share of the work that may be late, so that the last seconds of a job do not decide."""

MOST = 16.0
"""ρ above which a makespan counts as out of reach."""

UNITS = 1e9
"""Units of all work: flows are whole numbers of 32 bits."""

HEADS = ("makespan / limit", "front", "worst ρ", "95 % ρ", "unfair", "mean JCT (s)", "99 % JCT (s)")
"""Columns of the tables of policies."""


@dataclass(frozen=True)
class Fluid:
    """What the linear program has to do; arrays are by job.

    Attributes:
        arrived: Arrivals, in seconds.
        gangs: GPUs of each job.
        alone: Isolated run times, in seconds.
        fair: JCTs with a ρ of 1, in seconds.
        gpus: GPUs of the cluster.
        limit: The limit of the makespan, in seconds.
    """

    arrived: Floats
    gangs: Floats
    alone: Floats
    fair: Floats
    gpus: int
    limit: float

    def find_least_rho(self, makespan: float) -> float:
        """Return the least worst ρ at a makespan over the limit; infinite if it is out of reach."""
        least, most = 0.0, 2.0 * MOST
        while most - least > 0.001 and least < MOST:
            rho = (least + most) / 2.0
            due = np.minimum(self.arrived + rho * self.fair, makespan * self.limit)
            least, most = (least, rho) if self.find_unmet(due) <= UNMET else (rho, most)
        return most if least < MOST else math.inf

    def find_unmet(self, due: Floats) -> float:
        """Return the least share of the work that is not done by these due dates."""
        times = np.unique(np.concatenate([self.arrived, due]))
        seconds, work = np.diff(times), self.gangs * self.alone
        within = (self.arrived[:, None] <= times[:-1]) & (times[1:] <= due[:, None])
        job, interval = np.nonzero(within)
        # Nodes of the flow: a source, the jobs, the intervals, a sink.
        jobs = np.arange(1, len(work) + 1)
        intervals = np.arange(len(seconds)) + len(work) + 1
        sink = len(work) + len(seconds) + 1
        tails = np.concatenate([np.zeros_like(jobs), jobs[job], intervals])
        heads = np.concatenate([jobs, intervals[interval], np.full_like(intervals, sink)])
        most = [work, self.gangs[job] * seconds[interval], self.gpus * seconds]
        units = np.minimum(np.concatenate(most) / work.sum(), 1.0) * UNITS
        graph = csr_array((units.astype(np.int32), (tails, heads)), (sink + 1, sink + 1))
        return 1.0 - float(maximum_flow(graph, 0, sink).flow_value) / UNITS


@dataclass(frozen=True)
class Rule:
    """A policy with other values of some parameters."""

    policy: str
    parameters: tuple[Parameter, ...] = ()

    @property
    def label(self) -> str:
        """Its name in tables."""
        return " ".join([self.policy, *(f"{each.name}={each.value:g}" for each in self.parameters)])


@dataclass(frozen=True)
class Place:
    """Where a rule is.

    Attributes:
        rule: The rule.
        makespan: Its makespan over the limit.
        front: The least worst ρ at this makespan.
        rho: ρ by job.
        jct: JCT by job, in seconds.
    """

    rule: Rule
    makespan: float
    front: float
    rho: Floats
    jct: Floats

    def row(self) -> list[str]:
        """The cells of its row, of `HEADS`."""
        return [
            *(f"`{self.rule.label}`", f"{self.makespan:.3f}", write(self.front)),
            *(f"{self.rho.max():.2f}", f"{np.quantile(self.rho, 0.95):.2f}"),
            f"{(self.rho > UNFAIR_RHO).mean():.1%}",
            *(f"{self.jct.mean():,.0f}", f"{np.quantile(self.jct, 0.99):,.0f}"),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("workloads", nargs="*", default=[*TRACES], metavar="WORKLOAD")
    parser.add_argument("--policies", default=POLICIES, help="comma-separated")
    values = ("POLICY", "NAME=VALUE,VALUE,…")
    parser.add_argument("--sweep", nargs=2, metavar=values, help="a policy by a parameter")
    parser.add_argument("--plot", type=Path, help="write a picture (.svg or .png)")
    parser.add_argument("--markdown", action="store_true", help="print the tables of the docs")
    asked = parser.parse_args()
    show = (lambda *table: print(markdown(*table))) if asked.markdown else print_table
    rules = [Rule(policy) for policy in asked.policies.split(",")]
    if asked.sweep:
        policy, (name, values) = asked.sweep[0], asked.sweep[1].split("=")
        rules += [Rule(policy, (Parameter(name, float(each)),)) for each in values.split(",")]
    found: dict[str, tuple[Fluid, list[Place]]] = {}
    for name in asked.workloads:
        workload, gpus = open_workload(name), gpus_of(name)
        fluid = make_fluid(workload, Settings("fifo", make_pool(gpus)))
        found[name] = fluid, [find_place(rule, workload, gpus) for rule in rules]
    rows = [
        [name, *(write(fluid.find_least_rho(makespan)) for makespan in MAKESPANS)]
        for name, (fluid, _) in found.items()
    ]
    show(["Makespan / limit up to", *(f"{makespan:.2f}" for makespan in MAKESPANS)], rows)
    for name, (_, places) in found.items():
        show([name, *HEADS], [place.row() for place in places])
    if asked.plot:
        plot(asked.plot, found)


def make_fluid(workload: Workload, settings: Settings) -> Fluid:
    """The linear program of a workload; ρ is of rounds and restarts of these settings."""
    specs, alone = workload.specs, {t.job_id: t.isolated_seconds for t in workload.truths}
    return Fluid(
        arrived=np.array([spec.arrival_seconds for spec in specs]),
        gangs=np.array([float(spec.demand.least) for spec in specs]),
        alone=np.array([alone[spec.job_id] for spec in specs]),
        fair=find_fair_times(workload, settings),
        gpus=settings.gpus,
        limit=limit(workload, settings.gpus),
    )


def find_place(rule: Rule, workload: Workload, gpus: int) -> Place:
    """Simulate a workload under a rule; where it is."""
    settings = Settings(rule.policy, make_pool(gpus), parameters=rule.parameters)
    fluid, ends = make_fluid(workload, settings), find_ends(workload, settings).at
    ended = np.array([ends[spec.job_id] for spec in workload.specs])
    makespan, jct = float(ended.max()) / fluid.limit, ended - fluid.arrived
    return Place(rule, makespan, fluid.find_least_rho(makespan), jct / fluid.fair, jct)


def write(rho: float) -> str:
    """A ρ of the front as text."""
    return f"{rho:.2f}" if math.isfinite(rho) else "–"


def plot(path: Path, found: dict[str, tuple[Fluid, list[Place]]]) -> None:
    """Draw worst ρ against makespan, a panel for each workload."""
    figure, (axes,) = new_figure(1, len(found), height=3.8)
    for axis, (name, (fluid, places)) in zip(axes, found.items(), strict=True):
        swept = [place for place in places if place.rule.parameters]
        named = [place for place in places if not place.rule.parameters]
        x = np.linspace(1.0, max(place.makespan for place in places) + 0.02, 100)
        y = [fluid.find_least_rho(makespan) for makespan in x]
        axis.plot(x, y, color="black", zorder=1)
        axis.plot(*points(swept), "o-", color=COLOURS[1], markersize=3, zorder=2)
        axis.plot(*points(named), "o", color=COLOURS[0], markersize=5)
        axis.set(xlabel="makespan / limit", ylabel="worst ρ", yscale="log", ylim=(0.9, None))
        axis.set_title(name, loc="left", fontsize=10)
        axis.fill_between(x, y, 0.9, color="#eef0f3", linewidth=0)
        axis.annotate("out of reach", (x[-1], 0.93), ha="right", fontsize=8)
        axis.yaxis.set_major_locator(FixedLocator((1.0, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.yaxis.set_minor_locator(NullLocator())
        labels = {place.rule.label: points([place]) for place in named}
        for place in (*swept[:1], *swept[-1:]):
            labels[place.rule.label.removeprefix(f"{place.rule.policy} ")] = points([place])
        label_points(axis, labels)
    save(figure, path, "front")


def points(places: list[Place]) -> tuple[list[float], list[float]]:
    """Makespans and worst ρ of places."""
    return [place.makespan for place in places], [float(place.rho.max()) for place in places]


if __name__ == "__main__":
    main()
