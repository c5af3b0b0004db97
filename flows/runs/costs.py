"""The cost of the GPUs that jobs held, by the pools' tariff and at market prices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from containers.runtime import ContainerEvent
from solver.inventory import Inventory


@dataclass(frozen=True, slots=True)
class GpuCost:
    """GPU time held and its cost, as in the view `leases`.

    Attributes:
        gpu_seconds: GPU time; two jobs that share GPUs count half each.
        cost: Cost by the inventory's prices of a GPU-hour, in their currency.
        market_cost: Cost by each round's market price of a GPU-round, in units of its objective;
            None without a market.
    """

    gpu_seconds: float = 0.0
    cost: float = 0.0
    market_cost: float | None = None

    def __add__(self, other: "GpuCost") -> "GpuCost":
        """Return the sum of both."""
        paid = [cost for cost in (self.market_cost, other.market_cost) if cost is not None]
        return GpuCost(
            self.gpu_seconds + other.gpu_seconds,
            self.cost + other.cost,
            sum(paid) if paid else None,
        )


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices of a round.

    Attributes:
        inventory: The cluster, with each pool's price of a GPU-hour.
        prices: Market price of a GPU-round, by GPU type.
        round_seconds: Nominal length of a round.
    """

    inventory: Inventory
    prices: Mapping[str, float]
    round_seconds: float

    def read(
        self,
        leases: Mapping[int, tuple[int, ...]],
        finished: Iterable[ContainerEvent],
        began: float,
        until: float,
    ) -> dict[int, GpuCost]:
        """Return the costs of a round by job id.

        The round lasts from `began` to `until`, on the run's clock in seconds; `leases` map job ids
        to GPUs.
        """
        ends = {event.job_id: event.at_seconds for event in finished}
        seconds = {job_id: ends.get(job_id, until) - began for job_id in leases}
        holders: dict[int, list[int]] = {}
        for job_id, gpus in leases.items():
            holders.setdefault(gpus[0], []).append(job_id)
        return {
            job_id: self._account(gpus, seconds[job_id], [seconds[j] for j in holders[gpus[0]]])
            for job_id, gpus in leases.items()
        }

    def _account(self, gpus: tuple[int, ...], own: float, all_there: list[float]) -> GpuCost:
        shared = min(all_there) if len(all_there) > 1 else 0.0
        held = len(gpus) * (own - shared / 2.0)
        pool = self.inventory.pools[self.inventory.pool(gpus[0])]
        price = self.prices.get(pool.gpu_type)
        paid = None if price is None else held / self.round_seconds * price
        return GpuCost(held, held / 3600.0 * pool.price, paid)
