"""Logs are shown as they were read, and public sets are found and converted."""

import json
from pathlib import Path

from tests.flows.conftest import Command
from tests.warehouse.logs.samples import SAMPLES
from warehouse.workloads.gavel import read_whole
from warehouse.workloads.kinds import Format
from warehouse.workloads.public_sets import SETS, SHOCKWAVE_FILES
from warehouse.workloads.published_rules import published_gns
from warehouse.workloads.regimes import read_regimes

PHILLY = next(sample for sample in SAMPLES if sample.format is Format.PHILLY)


def test_show_prints_figures_and_what_was_left_out(here: Command, tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text("\n".join([",".join(PHILLY.header), *map(str, PHILLY.rows)]))
    done = here("workload", "show", "--format", "philly", "--trace", path)
    assert done.code == 0
    assert "2 jobs (philly.csv, 1 line left out)" in done.out
    assert "  1  without GPUs" in done.out
    assert "whether jobs can be preempted" in done.out
    rows = here("workload", "show", "--format", "philly", "--trace", path, "--json").rows
    assert [(row["job_id"], row["seconds"], row["gpus"], row["tenant"]) for row in rows] == [
        (0, 193_256.0, 8.0, "ee9e8c"),
        (1, 60.5, 1.0, "0e4a51"),
    ]
    refused = here("workload", "show", "--format", "tiresias", "--trace", path)
    assert refused.code == 2
    assert "tiresias is not a log of a cluster" in refused.err


def test_every_set_says_where_it_is(here: Command) -> None:
    assert [row["name"] for row in here("workload", "fetch", "--json").rows] == [*SETS]
    for name, found in SETS.items():
        done = here("workload", "fetch", name)
        assert done.code == 0
        assert found.address in done.out
        assert "  shockwave " in done.out
    refused = here("workload", "fetch", "phily")
    assert refused.code == 2
    assert "did you mean philly?" in refused.err


def test_shockwave_s_repository_becomes_a_folder_for_the_check(
    here: Command, data: Path, tmp_path: Path
) -> None:
    clone, folder = tmp_path / "clone" / "scheduler", tmp_path / "folder"
    (clone / "traces" / "reproduce").mkdir(parents=True)
    for name, kept in SHOCKWAVE_FILES.items():
        place = clone / "traces" / "reproduce" if name.endswith(".trace") else clone
        (place / name).symlink_to(data / kept)
    done = here("workload", "fetch", "shockwave", tmp_path / "clone", folder)
    assert done.code == 0, done.err
    assert {path.name for path in folder.iterdir()} == {
        *SHOCKWAVE_FILES.values(),
        "gns_regimes.csv",
    }
    assert read_regimes(folder / "gns_regimes.csv").gns == published_gns()
    assert (folder / "jobs120_gpus32.trace").read_bytes() == (
        data / "jobs120_gpus32.trace"
    ).read_bytes()
    again = here("workload", "fetch", "shockwave", tmp_path / "clone", folder)
    assert again.code == 2
    assert "is there already; give another folder" in again.err


def test_gavel_s_throughputs_become_a_table(here: Command, tmp_path: Path) -> None:
    jobs = ["('LM (batch size 5)', 1)", "('A3C', 1)"]
    table = {
        jobs[0]: {"null": 10.0, jobs[1]: [6.0, 3.0]},
        jobs[1]: {"null": 4.0, jobs[0]: [3.0, 6.0]},
    }
    path = tmp_path / "simulation_throughputs.json"
    path.write_text(json.dumps({"v100": table}))
    done = here("workload", "fetch", "gavel", path, tmp_path / "out")
    assert done.code == 0, done.err
    profile = read_whole(tmp_path / "out" / "throughputs.csv.gz")
    assert profile.rates == {("LM", 5, "v100", 1): 10.0, ("A3C", 1, "v100", 1): 4.0}
    assert profile.pairs["LM", 5, "A3C", 1, "v100", 1] == 6.0
    path.write_text("[]")
    refused = here("workload", "fetch", "gavel", path, tmp_path / "other")
    assert refused.code == 2
