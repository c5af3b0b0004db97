import pytest

from predictor.allocation import Demand
from predictor.errors import InputError


@pytest.mark.parametrize(
    ("least", "most", "says"),
    [
        (0, 1, "0 GPUs is not positive"),
        (-1, 1, "-1 GPUs is not positive"),
        (3, 2, "the maximum of 2 GPUs is below the minimum of 3"),
        (1, 0, "the maximum of 0 GPUs is below the minimum of 1"),
    ],
)
def test_a_demand_out_of_bounds_is_refused(least: int, most: int, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        Demand(least, most)
    assert caught.value.place == "demand"


def test_a_gang_needs_as_many_gpus_as_it_can_use_of_any_type() -> None:
    assert Demand.gang(4) == Demand(least=4, most=4, types=())
    assert Demand.gang(4).allows("k80")


def test_a_demand_allows_the_types_that_it_names() -> None:
    demand = Demand(1, 4, ("v100", "p100"))
    allowed = [kind for kind in ("v100", "p100", "k80", "") if demand.allows(kind)]
    assert allowed == ["v100", "p100"]
