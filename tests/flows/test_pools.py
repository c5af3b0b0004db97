"""Clusters of several pools on the command line, in campaigns and forms."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from flows.deployments.forms import SimulationForm
from flows.explain.whatif import Change
from flows.runs.pools import parse_pools
from flows.runs.settings import ClusterSize, make_machines, pools_of
from predictor.errors import InputError
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Pool
from tasks.record import Settings, make_pool
from tests.flows.conftest import Command, assert_refused
from tests.warehouse.test_gavel import HEADER, TEN

MIXED = "v100:2x1@2.48,k80:1x4"
POOLS = (Pool("v100", 2, 1, 2.48), Pool("k80", 4, 4))
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "throughputs.csv")


def test_pools_are_types_nodes_gpus_and_prices() -> None:
    assert parse_pools(MIXED) == POOLS
    assert parse_pools(" a100-80.g_b:1x8 ") == (Pool("a100-80.g_b", 8, 8),)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ("v100", "v100:2", "v100:2x", ":2x1", "v100:2x1@", "v100:-1x2", ","),
            "pools: .* is not like v100:12x1; give TYPE:NODESxGPUS",
        ),
        (
            [f"v100:2x1@{price}" for price in ("-1", "nan", "1e400", "9" * 400, "free")],
            "pools: v100:2x1@.*: .* is not a price; give 0 or more",
        ),
        (("v100:0x1", "v100:1x0"), "pools: v100:.x.: 0 is not positive"),
        (
            ("v100:1000000000x8",),
            "pools: v100:1000000000x8: 8000000000 is out of range; give at most 1000000 GPUs",
        ),
    ],
)
def test_other_pools_are_refused(texts: Iterable[str], said: str) -> None:
    for text in texts:
        with pytest.raises(InputError, match=said):
            parse_pools(text)


def test_a_cluster_has_one_size() -> None:
    assert pools_of(ClusterSize(pools=MIXED)) == POOLS
    assert pools_of(ClusterSize(8, 4)) == make_pool(8, 4)
    for size in (ClusterSize(8, pools=MIXED), ClusterSize(None, 4, MIXED), ClusterSize()):
        with pytest.raises(InputError, match=r"already give the number|missing; give the number"):
            pools_of(size)


def test_cells_and_levels_are_declared_as_text() -> None:
    found = make_machines(ClusterSize(8, 4, "", "a:v100:node:1, b:pair:2", "pair:2,v100:node:4"))
    assert found.cells == (TenantCells("a", "v100", "node", 1), TenantCells("b", "", "pair", 2))
    assert found.levels == (TypeLevel("", "pair", 2), TypeLevel("v100", "node", 4))


@pytest.mark.parametrize(
    ("cells", "levels", "said"),
    [
        ("a:node", "", "'a:node' is not like vision:v100:node:2"),
        ("a:node:1", "node", "'node' is not like v100:node:8"),
        ("a:node:3", "", "3 cells 'node' are promised and 2 are there for it"),
        ("a:v100:node:1", "", "there are no GPUs 'v100'"),
        ("a:node:1", "pair:3,node:1", "a node of gpu has 3 GPUs by its levels, and 4"),
    ],
)
def test_cells_that_cannot_be_promised_are_refused(
    here: Command, cells: str, levels: str, said: str
) -> None:
    size = ("--gpus", 8, "--gpus-per-node", 4, "--cells", cells, "--levels", levels)
    assert_refused(here("simulate", *size, "--jobs", 1), said)


def test_pools_of_a_form_stand_in_place_of_its_gpus() -> None:
    assert SimulationForm(pools=MIXED).settings.pools == POOLS
    assert SimulationForm().settings.pools == make_pool(16)
    assert (SimulationForm(pools=MIXED).machines, SimulationForm().machines) == (MIXED, "16 GPUs")


@pytest.mark.parametrize(
    ("pools", "problem"),
    [
        ("v100:2x1,k80:2x4", ""),
        ("v100:2x1", ""),
        ("v100:2x1,k80:1x4,v100:8x1", ""),
        ("v100:3x1,k80:1x4", "v100:3x1 in place of the run's v100:2x1 would renumber"),
        ("v100:2x1,p100:1x4", "p100:1x4 in place of the run's k80:1x4 has another GPU type"),
        ("v100:1x2,k80:1x4", "v100:1x2 in place of the run's v100:2x1 has another number of"),
        ("v100:2x1,k80:2x4,v100:8x1", "k80:2x4 in place of the run's k80:1x4 would renumber"),
    ],
)
def test_a_what_if_keeps_the_numbers_of_the_gpus(pools: str, problem: str) -> None:
    recorded, change = Settings("fifo", POOLS), Change(pools=parse_pools(pools))
    if not problem:
        found = change.settings(recorded).pools
        assert [pool.price for pool in found] == [2.48, 0.0, 2.48][: len(found)], "those of the run"
        assert [replace(pool, price=0.0) for pool in found] == [*change.pools]
    else:
        with pytest.raises(InputError, match=f"pools: {problem}.*run has v100:2x1,k80:1x4: resize"):
            change.settings(recorded)
    with pytest.raises(InputError, match="gpus: sets the size of a single pool"):
        Change(gpus=3).settings(recorded)


def test_a_what_if_keeps_prices_that_it_is_not_given_and_nodes_as_they_are() -> None:
    pools = (Pool("v100", 2, price=2.0), Pool("v100", 2, 2, price=1.0))
    for text, prices in (
        ("v100:2x1,v100:2x2", [2.0, 1.0]),
        ("v100:2x1@0.5,v100:1x2@0.7", [0.5, 0.7]),
        ("v100:2x1,v100:1x2,v100:1x1,k80:1x1", [2.0, 1.0, 2.0, 0.0]),
    ):
        found = Change(pools=parse_pools(text)).settings(Settings("mst", pools)).pools
        assert [pool.price for pool in found] == prices
    said = "gpus: 3 GPUs do not fill the run's nodes of 2 GPUs; give a multiple of 2"
    with pytest.raises(InputError, match=said):
        Change(gpus=3).settings(Settings("mst", pools[1:]))


@pytest.mark.slow
def test_a_trace_of_gavel_runs_on_several_types_and_can_be_forked(
    here: Command, tmp_path: Path
) -> None:
    table = [f"{kind},LM (batch size 5),1,,,{rate}," for kind, rate in (("v100", 9), ("k80", 2))]
    (tmp_path / "t.csv").write_text("\n".join([HEADER, *table]))
    lines = [TEN.replace("\t2\t0.5", "\t1\t1").replace("1000", str(n)) for n in (9000, 20000, 400)]
    (tmp_path / "t.trace").write_text("\n".join(lines))
    files = ["--trace", tmp_path / "t.trace", "--throughputs", tmp_path / "t.csv"]
    warehouse = ["--warehouse", tmp_path / "w"]
    asked = ["--pools", "v100:1x1@2,k80:1x1", "--policy", "fifo", *files, *warehouse]
    (row,) = here("simulate", *asked, "--json").rows
    # The first has the V100; the next moves there when it ends, and the last has the K80 then.
    assert row["gpus"] == 2
    run = row["run"]
    (held,) = here("sql", f"SELECT pools FROM runs WHERE run = '{run}'", *warehouse, "--json").rows
    assert [pool["gpu_type"] for pool in held["pools"]] == ["v100", "k80"]
    forked = ("run", "whatif", run, "--round", 1, *warehouse)
    more = here(*forked, "--pools", "v100:1x1,k80:2x1", "--json").rows
    figures = {row["figure"]: row for row in more if "figure" in row}
    assert figures["mean_jct_s"]["whatif"] < figures["mean_jct_s"]["recorded"]
    assert figures["cost"]["recorded"] > 0.0
    for empty, said in (("--pools", "'' is not like v100:12x1"), ("--policy", "unknown policy ''")):
        assert_refused(here(*forked, empty, ""), f"error: {empty}: {said}")


def test_jobs_are_drawn_from_a_table_of_throughputs(here: Command, tmp_path: Path) -> None:
    asked = ["--throughputs", EXAMPLE, "--jobs", "4", "--scale-factors", "1=0.5,2=0.5"]
    places = ["--pools", "v100:1x2,k80:1x2", "--round-seconds", "3600", "--policy", "fifo"]
    ran = here("simulate", *asked, *places, "--warehouse", tmp_path / "w", "--json")
    (row,) = ran.rows
    assert row["gpus"] == 4
    assert row["trace"] == "generated from throughputs.csv: 4 jobs, poisson, 90 s apart"
    # Its rates on several nodes are stored with it.
    assert here("run", "replay", row["run"], "--warehouse", tmp_path / "w").code == 0


def test_jobs_of_a_table_are_written_for_types_of_which_they_can_run(
    here: Command, tmp_path: Path
) -> None:
    asked = ["--throughputs", EXAMPLE, "--jobs", "5", "--scale-factors", "1=0.5,2=0.5"]
    rest = ["--policy", "fifo", "--round-seconds", "3600", "--warehouse", tmp_path / "w", "--json"]
    for pools in ("k80:2x2,v100:1x2", ""):
        places = ["--pools", pools] if pools else []
        output = here("workload", "generate", tmp_path / "o", *asked, *places, "--overwrite").out
        command = output.splitlines()[-1].split()[1:]
        runs = (command, ["simulate", *asked, "--pools", pools or "v100:2x1"])
        one, two = (here(*run, *rest).rows[0] for run in runs)
        same = ("gpus", "makespan_s", "mean_jct_s", "worst_rho")
        assert [one[name] for name in same] == [two[name] for name in same]
        assert f"simulate --pools {pools or 'v100:2x1'} --trace" in output
        assert output.endswith(f" --throughputs {EXAMPLE}\n")
    (written,) = here("workload", "generate", tmp_path / "j", *asked, "--json").rows
    assert (written["throughputs"], "profile" in written) == (EXAMPLE, False)
    assert {file.name for file in (tmp_path / "j").iterdir()} == {"jobs.trace", "regimes.csv"}
    files = ["--trace", tmp_path / "j" / "jobs.trace", "--profile", EXAMPLE]
    (again,) = here("workload", "generate", tmp_path / "again", *files, "--json").rows
    assert (again["throughputs"], "profile" in again) == (EXAMPLE, False)
    other = ("workload", "generate", tmp_path / "other")
    refused = here(*other, "--pools", "v100:2x1")
    assert_refused(refused, "--pools: need throughputs by GPU type; give --th")
    refused = here(*other, *asked, "--pools", "a100:1x1")
    assert_refused(refused, "has no GPU type 'a100'; did you mean v100? it has k80, v100")


def test_jobs_that_the_pools_never_hold_are_not_written(here: Command, tmp_path: Path) -> None:
    asked = ["--throughputs", EXAMPLE, "--jobs", "9", "--scale-factors", "1=0.5,2=0.5"]
    assert_refused(
        here("workload", "generate", tmp_path / "o", *asked, "--pools", "k80:1x1,v100:1x1"),
        "needs 2 GPUs, all of one type that it can run on, but the cluster has 1 k80, 1 v100; "
        "give a larger cluster or leave its number out of --scale-factors 1=0.5,2=0.5",
    )
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pools", "v100:1x1", "--gpus", "2"], "--pools: already give the number of GPUs"),
        (
            ["--pools", "gpu:8x1,gpu:8x1", "--policy", "slack"],
            "--policy: slack schedules one pool of GPUs; give one pool, or one of",
        ),
        (
            ["--pools", "v100:8x1", "--policy", "fifo"],
            "--pools: the profile has no GPUs of type 'v100'; it has gpu, as all generated jobs; "
            "to draw jobs of others, give throughputs (docs/traces.md)",
        ),
        (
            ["--pools", "v100:4x1,k8:4x1", "--throughputs", EXAMPLE],
            f"{EXAMPLE}: has no GPU type 'k8'; did you mean k80? it has k80, v100",
        ),
        (
            ["--pools", "v100:4x1,k80:4x1", "--throughputs", EXAMPLE, "--scale-factors", "4=1"],
            "--scale-factors: jobs with 4 GPUs are to be drawn, and throughputs.csv has none that "
            "can run there; give weights of those that it has, as in 1=1,2=1",
        ),
        (
            ["--gpus", "8", "--throughputs", EXAMPLE, "--contention-factor", "2"],
            "--contention-factor: has no effect on jobs drawn from throughputs; leave it out",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(
    here: Command, tmp_path: Path, options: list[str], said: str
) -> None:
    assert_refused(here("simulate", *options, "--warehouse", tmp_path / "w"), said)


def test_a_difference_of_pools_is_in_the_words_of_the_option(here: Command, tmp_path: Path) -> None:
    at = ("--warehouse", tmp_path / "w")
    runs = [
        here("simulate", "--jobs", 1, "--policy", "fifo", *size, *at, "--json").rows[0]["run"]
        for size in (("--gpus", 8), ("--pools", "gpu:4x2@2.5"))
    ]
    out = here("run", "diff", *runs, *at).out
    assert ["pools", "gpu:8x1", "gpu:4x2@2.5"] in map(str.split, out.splitlines())
    pools, *_ = here("run", "diff", *runs, *at, "--json").rows
    assert pools["one"] == [{"gpu_type": "gpu", "gpus": 8, "gpus_per_node": 1, "price": 0.0}]
