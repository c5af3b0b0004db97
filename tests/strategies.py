"""Hypothesis strategies for jobs, what is seen of them, and window markets."""

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from predictor.belief import Belief
from predictor.forecast import Forecast
from predictor.job import EpochReport, JobProgress, JobSpec, Mode, Regime
from predictor.profile import Profile
from solver.market import Bid, Market

GANGS = (1, 2, 4, 8)


def examples(count: int) -> settings:
    """So many examples of a property, but never more than the quick profile has in that."""
    quick = settings.get_current_profile_name() == "quick"
    return settings(max_examples=min(count, settings.default.max_examples) if quick else count)


def certain(
    job_id: int,
    remaining_seconds: float,
    run_seconds: float = 0.0,
    progress: Sequence[float] = (0.0,),
    regimes: Sequence[Regime] = (),
) -> Forecast:
    """A forecast without any doubt."""
    seconds = remaining_seconds
    return Forecast(
        job_id=job_id,
        remaining_seconds=seconds,
        mean_seconds=seconds,
        spread_seconds=0.0,
        low_seconds=seconds,
        high_seconds=seconds,
        run_seconds=run_seconds,
        samples=(seconds, seconds),
        progress=tuple(progress),
        regimes=tuple(regimes),
    )


@st.composite
def job_specs(draw: st.DrawFn, job_id: int = 0, modes: Sequence[Mode] = tuple(Mode)) -> JobSpec:
    """Jobs of every mode; some already start at the largest batch size."""
    batch_size = draw(st.sampled_from((8, 20, 64)))
    return JobSpec(
        job_id=job_id,
        model=f"model-{job_id}",
        batch_size=batch_size,
        max_batch_size=batch_size * draw(st.sampled_from((1, 2, 4, 5, 16, 1024))),
        scale_factor=draw(st.sampled_from(GANGS)),
        mode=draw(st.sampled_from(modes)),
        epochs=draw(st.integers(1, 200)),
        samples_per_epoch=draw(st.integers(1_000, 100_000)),
        arrival_seconds=float(draw(st.integers(0, 10_000))),
        tenant=draw(st.sampled_from(("red", "blue"))),
        budget=draw(st.sampled_from((0.5, 1.0, 3.0))),
    )


@st.composite
def profiles(draw: st.DrawFn, specs: Sequence[JobSpec]) -> Profile:
    """Throughputs for all that the jobs can visit; some larger sizes cannot run."""
    table = {}
    for spec in specs:
        for size in spec.batch_sizes:
            runs = size == spec.batch_size or draw(st.integers(0, 9)) > 0
            rate = draw(st.floats(0.05, 50.0)) if runs else 0.0
            table[spec.model, size, spec.scale_factor] = rate
    return Profile(table)


@st.composite
def beliefs(draw: st.DrawFn, spec: JobSpec, profile: Profile) -> Belief:
    """What may have been observed of a job: a history that its mode can bring about."""
    sizes = profile.reachable_batch_sizes(spec)
    visited, at = [sizes[0]], 0
    for _ in range(draw(st.integers(0, 4))):
        at = 1 - at if spec.mode is Mode.ACCORDION else at + 1
        if at < len(sizes):
            visited.append(sizes[at])
    belief, epoch = Belief(spec), 0
    for size in visited:
        epochs = draw(st.integers(0, spec.epochs - 1 - epoch))
        seconds = epochs * profile.epoch_seconds(spec, size)
        if epochs:
            belief = belief.after([EpochReport(spec.job_id, epoch, epochs, size, seconds)], None)
        epoch += epochs
    fraction = draw(st.sampled_from((0.0, 0.25, 0.9)))
    run_seconds = float(draw(st.integers(0, 100_000)))
    return belief.after(
        [], JobProgress(spec.job_id, epoch, fraction, visited[-1], 0.0, run_seconds, 0)
    )


@st.composite
def batches_of_beliefs(draw: st.DrawFn) -> tuple[tuple[Belief, ...], Profile]:
    """Beliefs about several jobs, with the profile they share."""
    specs = [draw(job_specs(job_id)) for job_id in range(draw(st.integers(1, 6)))]
    profile = draw(profiles(specs))
    return tuple(draw(beliefs(spec, profile)) for spec in specs), profile


@st.composite
def markets(
    draw: st.DrawFn,
    *,
    gangs: Sequence[int] = GANGS,
    gpus: Sequence[int] = (8, 9, 12),
    max_jobs: int = 6,
    max_window: int = 5,
    concave: bool | None = None,
    largest_exponent: int = 12,
) -> Market:
    """Small window problems, most of them tight; every number is a whole one.

    Args:
        draw: Hypothesis.
        gangs: Scale factors to choose from; repeat one to favour it.
        gpus: Cluster sizes to choose from.
        max_jobs: Most jobs.
        max_window: Most rounds.
        concave: Whether utilities are concave in rounds; None for either.
        largest_exponent: Weights go from 1 to 10 to this power.
    """
    window, size = draw(st.integers(1, max_window)), draw(st.sampled_from(gpus))
    fitting = [gang for gang in gangs if gang <= size]
    bids = []
    for job_id in range(draw(st.integers(1, max_jobs))):
        steps = st.lists(st.integers(0, 100), min_size=window, max_size=window)
        gains, drops = draw(steps), sorted(draw(steps), reverse=True)
        if concave or (concave is None and draw(st.booleans())):
            gains.sort(reverse=True)
        weight = float(10 ** draw(st.integers(0, largest_exponent)))
        utility = (np.cumsum([0, *gains]) - draw(st.integers(0, 1_000))) * weight
        remaining = sum(drops) + draw(st.integers(0, 200)) - np.cumsum([0, *drops])
        bids.append(
            Bid(
                job_id=job_id,
                scale_factor=draw(st.sampled_from(fitting)),
                weight=weight,
                utility=tuple(utility.tolist()),
                remaining_seconds=tuple(remaining.astype(float).tolist()),
            )
        )
    return Market.of(
        gpus=size,
        window=window,
        regularizer=float(draw(st.sampled_from((0, 1, 30)))),
        bids=tuple(bids),
    )


unit_markets = markets(gangs=(1,), gpus=(1, 2, 3))
"""Jobs of one GPU each: every count within capacity can be laid out."""

gang_heavy_markets = markets(gangs=(1, 1, 4, 8, 5, 3), gpus=(8,), max_jobs=7)
"""Gangs that fill a round beside jobs that want all of them: many cannot be laid out."""
