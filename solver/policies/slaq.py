"""Quality first: GPUs go to the jobs whose loss falls most in the coming round."""

from dataclasses import dataclass, replace

from predictor.errors import InputError
from predictor.quality import fit_curve
from solver.plan import ActiveJob, Plan, Policy, Situation
from solver.policies.listed import run_list

LEAST_LOSSES = 3
"""Minimum number of losses to fit a curve: as many as a μᵏ + d has parameters
(`predictor.quality`)."""


@dataclass(frozen=True)
class Slaq(Policy):
    """Jobs by the expected normalised fall of their loss in the coming round, per GPU.

    Zhang et al., SLAQ (SoCC '17): a curve is fitted to the loss after each epoch
    (`predictor.quality`). The fall that it predicts is divided by the largest change between two
    epochs so far, which makes losses of different kinds comparable. Gangs are fixed here, so the
    policy ranks jobs by fall per GPU instead of adding GPUs to jobs one by one.

    Jobs that have trained fewer than `trial` epochs come first, by arrival, because nothing is
    known of them. A job that reports no losses counts one unit of fall per epoch.

    Attributes:
        recency: Weight of a loss relative to the next one in the fit, in (0, 1]. Chosen by hand,
            not swept.
        trial: Epochs before the curve is used; the default suffices to fit one.
    """

    name = "slaq"
    summary = "whose training loss is expected to fall most in the coming round"
    source = "Zhang et al., SLAQ (SoCC '17)"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    reads_losses = True

    recency: float = 0.9
    trial: float = 3.0

    def __post_init__(self) -> None:
        if not 0.0 < self.recency <= 1.0:
            raise InputError(
                "parameters.recency", f"{self.recency:g} is not in (0, 1]", "give a share"
            )
        if not self.trial >= LEAST_LOSSES:
            raise InputError(
                "parameters.trial", f"{self.trial:g} epochs show no curve", "give 3 or more"
            )

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        worth = {job.job_id: self._worth(job, situation) for job in situation.jobs}

        def rank(job: ActiveJob) -> tuple[bool, float, int]:
            tried = job.spec.timed or job.belief.epochs_done >= self.trial
            return tried, -worth[job.job_id] if tried else job.spec.arrival_seconds, job.job_id

        plan = run_list(self.name, situation, sorted(situation.jobs, key=rank))
        return replace(plan, worth=tuple(worth[job_id] for job_id in plan.order))

    def _worth(self, job: ActiveJob, situation: Situation) -> float:
        lost = 0.0 if job.gpus else job.throughput.restart(job.own, situation.restart_seconds)
        return self.fall(job, max(situation.round_seconds - lost, 0.0)) / job.gang

    def fall(self, job: ActiveJob, seconds: float) -> float:
        """Return the expected normalised fall of a job's loss in `seconds` of training."""
        belief = job.belief
        steps = seconds * job.rate(job.own)
        ahead = min(steps / job.spec.steps_per_epoch(belief.batch_size), belief.epochs_left)
        values = tuple(found.loss for found in belief.losses)
        if len(values) < LEAST_LOSSES:
            return ahead
        if not belief.largest_change:
            return 0.0
        curve = fit_curve(tuple(found.epoch + 1 for found in belief.losses), values, self.recency)
        now = belief.epochs_done
        return max(curve.at(now) - curve.at(now + ahead), 0.0) / belief.largest_change
