"""Campaign files: their meaning, and errors that name file and field."""

from dataclasses import asdict
from pathlib import Path

import pytest

from flows.campaigns.cells import check_start, expand_cells
from flows.campaigns.plan import SettingsPlan, WorkloadPlan, read_campaign
from flows.runs.settings import SimulationSettings
from flows.runs.workload_source import Source, WorkloadSettings
from predictor.errors import InputError
from tasks.record import Parameter, Settings, make_pool
from tests.flows.conftest import Command, assert_refused, tree

EXAMPLE = Path(__file__).parents[2] / "examples" / "campaign.toml"

PLAN = """
name = "plan"
policies = ["fifo", {policy = "shockwave", name = "late", parameters = {lateness = 1e-4}}]
seeds = [3, 4]

[settings]
window = 5

[[workloads]]
name = "drawn"
jobs = 2

[[clusters]]
name = "four"
gpus = 4
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "plan.toml"
    path.write_text(text)
    return path


def test_a_cell_for_each_combination(tmp_path: Path) -> None:
    options = '\n[[options]]\nname = "wide"\nwindow = 9\n[[options]]\nname = "as-is"\n'
    cells = expand_cells(read_campaign(written(tmp_path, PLAN + options)))
    assert [cell.name for cell in cells] == [
        f"{policy}/drawn/four/{variant}/seed{seed}"
        for variant in ("wide", "as-is")
        for policy in ("fifo", "late")
        for seed in (3, 4)
    ]
    assert cells[2].settings == Settings(
        "shockwave", make_pool(4), parameters=(Parameter("lateness", 1e-4),), window=9, seed=3
    )
    assert cells[4].settings == Settings("fifo", make_pool(4), window=5, seed=3)
    assert cells[0].source == Source(jobs=2, seed=3)


def test_workloads_policies_and_clusters_can_be_bound(tmp_path: Path) -> None:
    text = PLAN.replace('"fifo"', '{policy = "fifo", workloads = ["small"]}')
    text += '\n[[clusters]]\nname = "two"\ngpus = 2\n'
    text += '\n[[workloads]]\nname = "small"\njobs = 1\nclusters = ["two"]\nseeds = [7]\n'
    names = [cell.name for cell in expand_cells(read_campaign(written(tmp_path, text)))]
    assert names == [
        "late/drawn/four/seed3",
        "late/drawn/four/seed4",
        "late/drawn/two/seed3",
        "late/drawn/two/seed4",
        "fifo/small/two/seed7",
        "late/small/two/seed7",
    ]


def test_files_are_taken_from_the_folder_of_the_plan_and_run_with_each_seed(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,num_gpu,submit_time,model_name,duration\n")
    text = PLAN.replace("jobs = 2", 'trace = "jobs.csv"\nformat = "tiresias"')
    cells = expand_cells(read_campaign(written(tmp_path, text)))
    assert [cell.name for cell in cells] == [
        f"{policy}/drawn/four/seed{seed}" for policy in ("fifo", "late") for seed in (3, 4)
    ]
    assert {cell.source for cell in cells} == {cells[0].source}
    assert cells[0].source.trace == tmp_path / "jobs.csv"
    assert [cell.settings.seed for cell in cells] == [3, 4, 3, 4]  # of what forecasts draw


def test_fields_are_those_of_the_command_line_with_its_defaults() -> None:
    plan = WorkloadPlan(name="any").model_dump(exclude={"name", "clusters", "seeds"})
    assert plan == asdict(WorkloadSettings())
    assert SettingsPlan().model_dump() == asdict(SimulationSettings())


def test_the_example_is_a_campaign() -> None:
    assert len(expand_cells(read_campaign(EXAMPLE))) == 54


MISTAKES = [
    ("name = ", "name == ", ["is not TOML", "line 2"]),
    ("seeds = [3, 4]", "seed = [3, 4]", [": seed: ", "not a field", "did you mean seeds?"]),
    ("jobs = 2", "job = 2", ["workloads[0].job:", "did you mean jobs?"]),
    ("gpus = 4", "gpu = 4", ["clusters[0].gpu:", "did you mean gpus?"]),
    ("gpus = 4", "", ["clusters[0]", "gpus: missing; give the number of GPUs, or pools"]),
    ("gpus = 4", "pools = 'v100'", ["clusters[0]", "'v100' is not like v100:12x1"]),
    ("gpus = 4", "gpus = 4\npools = 'v100:1x1'", ["clusters[0]", "already give the number"]),
    ("gpus = 4", "gpus = 4\nnodes = 2", ["clusters[0].nodes", "choose from name, gpus"]),
    ("window = 5", "windows = 5", ["settings.windows", "did you mean window?"]),
    ("lateness = 1e-4", "lateness = nan", ["policies[1].parameters.lateness", "finite"]),
    ('name = "late"', 'nam = "late"', ["policies[1].nam", "did you mean name?"]),
    ("window = 5", "window = 0", ["settings.window", "0 is refused", "greater than or equal"]),
    ("window = 5", "window = '5'", ["settings.window", "valid integer"]),
    ("window = 5", "forecasts = 'magic'", ["settings.forecasts", "'posterior'"]),
    ("window = 5", "runtime = 'faithfull'", ["settings.runtime", "did you mean faithful?"]),
    ("gpus = 4", "gpus = 0", ["clusters[0].gpus", "0 is refused"]),
    ("gpus = 4", "gpus = 4.5", ["clusters[0].gpus", "4.5 is refused"]),
    ("jobs = 2", "jobs = 2\ntrace = 'no.trace'", ["workloads[0].trace", "no file", "no.trace"]),
    ("jobs = 2", "jobs = 2\nclusters = ['five']", ["no cluster is named 'five'", "from four"]),
    ('"fifo"', '"lottery"', ["policies[0].policy", "'lottery'", "choose from shockwave"]),
    ('"fifo"', '"fifo", "fifo"', ["policies", "'fifo' is used twice"]),
    ('"fifo"', '{policy = "fifo", workloads = ["x"]}', ["no workload is named 'x'"]),
    ("seeds = [3, 4]", "seeds = [3, 3]", ["seeds", "twice"]),
    ("seeds = [3, 4]", "seeds = []", ["seeds", "at least 1"]),
    ("seeds = [3, 4]", "seeds = 3", ["seeds", "3 is refused; give a list: values in brackets"]),
    ("seeds = [3, 4]", "seeds = [-1]", ["seeds[0]", "-1 is refused"]),
    ('name = "plan"', 'name = "My Plan"', [": name: ", "give lower-case letters, digits, dots"]),
    ('name = "plan"', "", [": name: is missing"]),
]


@pytest.mark.parametrize(("good", "bad", "said"), MISTAKES)
def test_a_mistake_is_reported_with_its_place(
    tmp_path: Path, good: str, bad: str, said: list[str]
) -> None:
    assert good in PLAN
    path = written(tmp_path, PLAN.replace(good, bad, 1))
    with pytest.raises(InputError) as caught:
        read_campaign(path)
    for part in (str(path), *said):
        assert part in str(caught.value)


def test_a_trace_can_be_bound_to_one_seed(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("")
    text = PLAN.replace("jobs = 2", 'trace = "jobs.csv"\nformat = "tiresias"\nseeds = [0]')
    cells = expand_cells(read_campaign(written(tmp_path, text)))
    assert [cell.name for cell in cells] == ["fifo/drawn/four/seed0", "late/drawn/four/seed0"]


DASK, RAY = (["--runner", runner, "--address"] for runner in ("dask", "ray"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["no.toml"], "No such file"),
        (
            [EXAMPLE, "--address", "tcp://127.0.0.1:1"],
            "--address: has no effect with the runner processes",
        ),
        ([EXAMPLE, *DASK, "tcp://127.0.0.1:1"], "--address: tcp://127.0.0.1:1 cannot be reached ("),
        ([EXAMPLE, *RAY, "ray://127.0.0.1:1"], "--address: ray://127.0.0.1:1 cannot be reached ("),
        (
            [EXAMPLE, *RAY, "127.0.0.1"],
            "--address: '127.0.0.1' is not an address; give an address like ray://",
        ),
        (
            [EXAMPLE, *DASK, "tcp://[::1"],
            "--address: 'tcp://[::1' is not an address; give an address like tcp",
        ),
    ],
)
def test_the_command_refuses_before_anything_starts(
    here: Command, tmp_path: Path, options: list[str], said: str
) -> None:
    assert_refused(here("campaign", "run", *options, "--warehouse", tmp_path / "w", "--json"), said)
    assert tree(tmp_path) == {}


def test_a_campaign_of_which_no_cell_can_start_is_refused_before_anything_starts(
    here: Command, tmp_path: Path
) -> None:
    path = written(tmp_path, PLAN.replace("gpus = 4", 'pools = "v100:2x4,zz:1x4"'))
    before = tree(tmp_path)
    ran = here("campaign", "run", path, "--warehouse", tmp_path / "w", "--json")
    said = "campaign 'plan': no cell can start; fifo/drawn/four/seed3: "
    assert_refused(ran, said, "pools: the profile has no GPUs of type 'v100'; ")
    assert tree(tmp_path) == before


def test_one_cell_that_can_start_is_enough(tmp_path: Path) -> None:
    typed = '[[clusters]]\nname = "typed"\npools = "zz:4x1"\n\n[[clusters]]'
    plan = read_campaign(written(tmp_path, PLAN.replace("[[clusters]]", typed)))
    assert [cell.cluster for cell in expand_cells(plan)] == ["typed"] * 4 + ["four"] * 4
    check_start(plan, tmp_path)
