"""Tenants: their terms, their use of quotas, and how they divide budgets among jobs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import repeat

from predictor.belief import Belief
from tasks.commands import HOUR, Command, CommandKind, TenantTerms

MOST_WINDOWS = 1_000
"""Windows without use after which no further hours are carried over. An engineering bound."""


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """A tenant's use of its quota.

    Attributes:
        window: Number of the window, 0 at the start of the run.
        used: GPU-seconds that its jobs held in the window, restarts included.
        carried: GPU-seconds carried over from earlier windows.
    """

    window: int = 0
    used: float = 0.0
    carried: float = 0.0

    def at(self, clock_seconds: float, terms: TenantTerms) -> "QuotaUse":
        """Return the use in the window of a time; carry each window's rest over into the next."""
        number, found = int(clock_seconds // (terms.window_hours * HOUR)), self
        quota = terms.gpu_hours * HOUR
        for _ in repeat(None, min(number - self.window, MOST_WINDOWS)):
            left = max(quota + found.carried - found.used, 0.0)
            found = QuotaUse(number, 0.0, min(left, terms.rollover * HOUR))
        return found


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Terms of tenants and their use of quotas: a fold over commands and leases."""

    terms: Mapping[str, TenantTerms] = field(default_factory=dict)
    usage: Mapping[str, QuotaUse] = field(default_factory=dict)

    def after(
        self, clock_seconds: float, held: Mapping[str, float], commands: Sequence[Command]
    ) -> "Tenancy":
        """Return the tenancy after a round, given the GPU-seconds held in it by tenant."""
        given = [command.terms for command in commands if command.kind is CommandKind.TENANT]
        if not given and not self.usage:
            return self
        usage = {
            tenant: found.at(clock_seconds, self.terms[tenant])
            for tenant, found in self.charge(held).usage.items()
        }
        terms = dict(self.terms)
        for new in given:
            known = terms.get(new.tenant)
            terms[new.tenant] = new
            if not new.gpu_hours:
                usage.pop(new.tenant, None)
            elif known is None or known.window_hours != new.window_hours or not known.gpu_hours:
                window = int(clock_seconds // (new.window_hours * HOUR))
                usage[new.tenant] = QuotaUse(window)
        return Tenancy(terms, usage)

    def charge(self, held: Mapping[str, float]) -> "Tenancy":
        """Return the tenancy after further GPU-seconds in the current windows, by tenant."""
        if not any(held.values()):
            return self
        usage = {
            tenant: replace(found, used=found.used + held.get(tenant, 0.0))
            for tenant, found in self.usage.items()
        }
        return Tenancy(self.terms, usage)

    def spent_until(self, tenant: str) -> float | None:
        """Return the end of the current window if a tenant's quota is used up, otherwise None."""
        found, terms = self.usage.get(tenant), self.terms.get(tenant)
        if found is None or terms is None or found.used < terms.gpu_hours * HOUR + found.carried:
            return None
        return (found.window + 1) * terms.window_hours * HOUR

    def divide_budgets(
        self, beliefs: Mapping[int, Belief], running: Collection[int]
    ) -> dict[int, float]:
        """Return the market budgets that differ from the jobs' own, by job id.

        The budgets of a tenant's jobs that may run are added up, multiplied by the tenant's factor,
        and divided among these jobs by budget times priority.
        """
        asking: dict[str, list[Belief]] = {}
        prior = {b.spec.tenant for b in beliefs.values() if b.spec.options.priority != 1.0}
        for job_id in running if prior or self.terms else ():
            tenant = beliefs[job_id].spec.tenant
            if tenant in prior or self.factor(tenant) != 1.0:
                asking.setdefault(tenant, []).append(beliefs[job_id])
        found: dict[int, float] = {}
        for tenant, jobs in asking.items():
            weights = [job.spec.budget * job.spec.options.priority for job in jobs]
            total = sum(job.spec.budget for job in jobs) * self.factor(tenant)
            whole = sum(weights)
            shares = (total * weight / whole for weight in weights)
            found |= {job.spec.job_id: share for job, share in zip(jobs, shares, strict=True)}
        return found

    def factor(self, tenant: str) -> float:
        """Return the factor on the budgets of a tenant's jobs."""
        terms = self.terms.get(tenant)
        return terms.budget if terms else 1.0


NO_TENANCY = Tenancy()


def may_use_image(terms: TenantTerms | None, image: str) -> bool:
    """Return whether a tenant's jobs may name an image."""
    if terms is None or not terms.images or not image:
        return True
    return any(fnmatchcase(image, form) for form in terms.images)


def sum_gpu_seconds(
    held: Iterable[tuple[str, float]], tenants: Collection[str]
) -> dict[str, float]:
    """Return GPU-seconds by tenant, from the tenant and GPU-seconds of each lease."""
    found = dict.fromkeys(tenants, 0.0)
    for tenant, gpu_seconds in held if found else ():
        if tenant in found:
            found[tenant] += gpu_seconds
    return found
