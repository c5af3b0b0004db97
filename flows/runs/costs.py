"""The cost of the GPUs that jobs held, by the pools' tariff and at market prices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from containers.runtime import ContainerEvent
from solver.inventory import Inventory
from tasks.time_held import GpuHold, TimeHeld


class EventfulRound(Protocol):
    """The events of a round: fields of its record."""

    @property
    def clock_seconds(self) -> float:
        """The run's clock at its start."""
        ...

    @property
    def finished(self) -> tuple[ContainerEvent, ...]:
        """Ends of leases in the round before."""
        ...

    @property
    def events(self) -> tuple[ContainerEvent, ...]:
        """Preemptions and launches at its start."""
        ...


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
        time_held: TimeHeld,
        leases: Mapping[int, tuple[int, ...]],
        record: EventfulRound,
    ) -> Iterator[tuple[int, GpuCost]]:
        """Yield the costs of a round, each with its job id; a job can have two.

        `time_held` and `leases` (GPUs by job id) are those after the round's dispatch; `record` is
        the next round, whose dispatch may end leases.
        """
        held = time_held.measure_round(leases, record.finished, record.clock_seconds)
        ended = {event.job_id for event in record.finished}
        left = {job_id: gpus for job_id, gpus in leases.items() if job_id not in ended}
        rest = TimeHeld(record.clock_seconds).measure_dispatch(left, record.events)
        for job_id, holding in (*held.items(), *rest.items()):
            yield job_id, self._account(holding)

    def _account(self, holding: GpuHold) -> GpuCost:
        held, gpus = holding.gpu_seconds, holding.gpus
        pool = self.inventory.pools[self.inventory.pool(gpus[0])]
        price = self.prices.get(pool.gpu_type)
        paid = None if price is None else held / self.round_seconds * price
        return GpuCost(held, held / 3600.0 * pool.price, paid)
