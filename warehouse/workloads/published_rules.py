"""Rules of the published simulator: data sets, batch-size limits, regimes, run times.

The simulator of Shockwave (NSDI '23) replays GNS and Accordion by rule instead of training. The
rules do not depend on the trace format that names the jobs. `docs/simulation.md` describes how the
virtual cluster applies them.
"""

import math
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise, product

from containers.virtual.truth import GroundTruth
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile, epoch_seconds

SAMPLES_PER_EPOCH = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
}
"""Data set size by model, as the published simulator counts it."""

MAX_BATCH_SIZE = {
    "ResNet-18": 256,
    "ResNet-50": 128,
    "Transformer": 128,
    "LM": 80,
    "Recommendation": 8_192,
}
"""Batch size at which adaptation stops; a job can start above it."""

GnsTable = Mapping[tuple[str, int, int], tuple[Regime, ...]]
"""(model, initial batch size, scale factor) to regimes; the last regime is open-ended."""


INITIAL_BATCH_SIZES = {
    "ResNet-18": (16, 32, 64, 128, 256),
    "ResNet-50": (16, 32, 64, 128),
    "LM": (5, 10, 20, 40, 80),
    "Transformer": (16, 32, 64, 128, 256),
    "Recommendation": (512, 1_024, 2_048, 4_096, 8_192),
}
"""Batch sizes at which jobs of the public traces start, by model."""

SCALE_FACTORS = (1, 2, 4, 8)
"""Scale factors of the public traces."""

GNS_STARTS: Mapping[tuple[str, int], Mapping[int, tuple[int, ...]]] = {
    ("ResNet-18", 16): {1: (31, 41, 51, 71), 2: (21, 31, 91, 111), 4: (11, 21, 81, 91)},
    ("ResNet-18", 32): {1: (21, 31, 51), 2: (11, 21, 41), 4: (21, 31, 61)},
    ("ResNet-18", 64): {1: (11, 31), 2: (21, 41), 4: (11, 61)},
    ("ResNet-18", 128): {1: (11,), 2: (41,), 4: (11,)},
    ("ResNet-50", 32): {2: (101, 111), 4: (131, 221)},
    ("ResNet-50", 64): {1: (101,), 2: (81,), 4: (191,)},
    ("LM", 5): {1: (31, 41, 61, 71), 2: (31, 51, 61, 71), 4: (11, 31, 71, 91)},
    ("LM", 10): {1: (11, 21, 41), 2: (11, 31, 41), 4: (11, 31, 61)},
    ("LM", 20): {1: (11, 41), 2: (31, 41), 4: (11, 61)},
    ("LM", 40): {1: (11,), 2: (11,), 4: (61,)},
    ("Recommendation", 512): {1: (21, 41, 71, 91)},
    ("Recommendation", 1_024): {1: (21, 51, 91)},
    ("Recommendation", 2_048): {1: (21, 41)},
    ("Recommendation", 4_096): {1: (41,)},
}
"""Epochs from which a GNS job's batch size is twice what it was, by model and initial batch size,
and then by scale factor. Of other jobs the published simulator never changes the batch size."""


def published_gns() -> GnsTable:
    """Return the regimes of GNS jobs in the published simulator."""
    table = {}
    for model, sizes in INITIAL_BATCH_SIZES.items():
        for size, gpus in product(sizes, SCALE_FACTORS):
            starts = (0, *GNS_STARTS.get((model, size), {}).get(gpus, ()), math.inf)
            table[model, size, gpus] = tuple(
                Regime(size << doublings, end - start)
                for doublings, (start, end) in enumerate(pairwise(starts))
            )
    return table


def published_truth(spec: JobSpec, profile: Profile, gns: GnsTable) -> GroundTruth:
    """Return the ground truth of a job under the rules of the published simulator.

    As in that simulator, two rules differ. The *profiled* batch sizes give the isolated run time.
    The *targets* are the batch sizes that the cluster sets, depending on the epoch begun.

    Args:
        spec: The job as declared.
        profile: Throughputs; a job never changes to a batch size without one.
        gns: Regimes of GNS jobs; a job without an entry never changes.

    Raises:
        InputError: The profile cannot run the job's initial batch size.
    """
    if spec.mode is Mode.GNS:
        table = gns.get(spec.cohort, (Regime(spec.batch_size, math.inf),))
        profiled, targets = _gns_profiled(spec, table), _gns_targets(table)
    elif spec.mode is Mode.ACCORDION:
        profiled, targets = _accordion(spec)
    else:
        profiled, targets = [spec.batch_size] * spec.epochs, [spec.batch_size]
    if spec.batch_size >= spec.max_batch_size:  # the cluster never adapts such a job
        targets = [spec.batch_size]

    def runnable(size: int) -> int:
        can_run = profile.can_run(spec, size, profile.reference(spec))
        return size if can_run else spec.batch_size

    entered = {size: runnable(size) for size in {*profiled, *targets}}
    alone = [entered[size] for size in profiled]
    seconds = {size: epoch_seconds(profile, spec, size) for size in set(alone)}
    return GroundTruth(
        job_id=spec.job_id,
        isolated_seconds=sum(seconds[size] for size in alone),
        profiled=run_lengths(alone),
        targets=run_lengths(entered[size] for size in targets),
    )


def run_lengths(batch_sizes: Iterable[int]) -> tuple[Regime, ...]:
    """Run-length encode the batch sizes of consecutive epochs."""
    return tuple(Regime(size, len(list(run))) for size, run in groupby(batch_sizes))


def _regimes_of(table: tuple[Regime, ...], epochs: int) -> list[int]:
    """Return the index of the regime of each epoch."""
    found: list[int] = []
    for index, regime in enumerate(table):
        found += [index] * int(min(regime.epochs, epochs - len(found)))
    return found


def _gns_profiled(spec: JobSpec, table: tuple[Regime, ...]) -> list[int]:
    """Return the table's batch sizes; after two changes, the last epoch has the initial one."""
    regimes = _regimes_of(table, spec.epochs)
    sizes = [table[index].batch_size for index in regimes]
    if regimes[-1] >= 2:
        sizes[-1] = spec.batch_size
    return sizes


def _gns_targets(table: tuple[Regime, ...]) -> list[int]:
    """Return the targets: each change is due one epoch before the table's."""
    changes = sum(int(regime.epochs) for regime in table[:-1])
    return [table[index].batch_size for index in _regimes_of(table, changes + 2)[1:]]


def _accordion(spec: JobSpec) -> tuple[list[int], list[int]]:
    """Return profiled and target batch sizes: the initial in critical epochs, else the largest.

    The profiled run also treats as critical the first 30 % of the epochs and two spans of the
    recommendation model; the cluster tests neither.
    """
    small, large, epochs = spec.batch_size, spec.max_batch_size, range(spec.epochs + 1)
    targets = [large] * len(epochs)
    for span in _critical(spec):
        targets[span] = [small] * len(epochs[span])
    profiled = targets.copy()
    early = [slice(0, math.floor(0.3 * spec.epochs) + 1)]
    late = [slice(60, 70), slice(80, 90)] if spec.model == "Recommendation" else []
    for span in early + late:
        profiled[span] = [small] * len(epochs[span])
    return profiled[: spec.epochs], targets


def _critical(spec: JobSpec) -> list[slice]:
    """Return the epochs that the published simulator regards as critical."""
    match spec.model:
        case "ResNet-18":
            first = 20 if spec.batch_size == 256 else 10
            return [slice(0, first), slice(150, 160), slice(250, 260)]
        case "ResNet-50":
            return [slice(start, start + 10) for start in range(0, spec.epochs + 1, 30)]
        case "LM":
            return [slice(0, 10)]
        case "Recommendation":
            return [slice(0, {512: 30, 1024: 30, 2048: 40}.get(spec.batch_size, 10))]
        case _:
            return [slice(None)]
