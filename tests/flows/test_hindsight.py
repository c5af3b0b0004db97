"""`shockwave hindsight`: a log, two policies, a page."""

import csv
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flows.campaigns.hindsight import estimate_left, run_policies
from flows.runs.settings import ClusterSize, SimulationSettings, make_settings
from flows.runs.start import make_start, open_workload
from flows.runs.workload_source import Source
from predictor.errors import InputError, ShockwaveError
from tasks.record import Start
from tests.flows.conftest import Command, assert_refused
from tests.warehouse.logs.samples import SACCT, sacct
from warehouse.store.parts import WHOLE

pytestmark = pytest.mark.process  # each policy runs in a process of its own

NAMES = "qx-ann", "qx-bob", "qx-lab", "qx-prod", "qx-train", "qx-eval"
FEW = ("--policies", "fifo,srtf", "--json")


def row(job: int, submit: str, start: str, end: str, seconds: int, who: int) -> list[str]:
    named = {"User": NAMES[who], "Account": NAMES[2 + who], "JobName": NAMES[4 + who]}
    return sacct(str(job), submit, start, end, seconds, NNodes="1", **named)


ROWS = [
    row(1, "08:00:00", "08:00:00", "09:00:00", 3600, 0),
    row(2, "08:00:00", "09:00:00", "10:00:00", 3600, 1),
    row(3, "08:10:00", "10:00:00", "10:01:40", 100, 0),
    row(4, "08:10:00", "None", "08:20:00", 0, 1),
]
"""Two GPUs: in the even cluster the first job ends at 10:01:40, as the second does; the third,
which trains at a third of its speed, takes 300 s."""
JCTS, FAIR = [3600, 7200, 6700], [7300, 7300, 300]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "month.txt"
    path.write_text("\n".join("|".join(fields) for fields in [SACCT, *ROWS]), encoding="utf-8")
    return path


def contents(folder: Path) -> Iterator[str]:
    """What the files of a folder say."""
    for path in folder.rglob("*"):
        yield path.name
        if path.suffix == ".parquet":
            yield str(pq.read_table(path).to_pylist())
        elif path.is_file():
            yield path.read_bytes().decode("utf-8", "replace")


def test_actual_and_simulated(here: Command, log: Path, tmp_path: Path) -> None:
    kept = "--warehouse", tmp_path / "warehouse"
    done = here("hindsight", log, *FEW, *kept)
    assert done.code == 0, done.err
    assert "1  never started" in done.err
    actual, fifo, srtf = done.rows
    assert [each["schedule"] for each in done.rows] == ["actual", "fifo", "srtf"]
    assert actual["mean_wait_s"] == pytest.approx((0 + 3600 + 6600) / 3)
    assert actual["makespan_s"] == 7300
    rhos = [jct / (fair + 140) for jct, fair in zip(JCTS, FAIR, strict=True)]
    assert actual["worst_rho"] == pytest.approx(max(rhos))
    assert actual["mean_rho"] == pytest.approx(sum(rhos) / 3)
    # The second job starts with the round after the first one's end, and pays a restart.
    assert fifo["mean_wait_s"] == pytest.approx((0 + 3600 + 7220 - 600) / 3)
    assert srtf["mean_wait_s"] < fifo["mean_wait_s"]
    sql = "SELECT max(rho) AS rho, avg(waiting_seconds) AS wait FROM job_outcomes WHERE run = '{}'"
    for each in (fifo, srtf):  # the yardstick of the log is that of runs
        (stored,) = here("sql", sql.format(each["run"]), *kept, "--json").rows
        assert stored["rho"] == pytest.approx(each["worst_rho"], abs=1e-5)
        assert stored["wait"] == pytest.approx(each["mean_wait_s"])
    page = Path(actual["page"]).read_text(encoding="utf-8")
    assert all(
        name in page for name in ("month.txt", "qx-ann", "qx-prod", "never started", "2 GPUs")
    )
    again = here("hindsight", log, *FEW, *kept)
    assert again.rows == done.rows  # the same runs: none is simulated again
    other = here("hindsight", log, *FEW, *kept, "--restart-seconds", 5)
    assert other.rows[0]["page"] != actual["page"]
    said = " ".join(here("hindsight", log, "--policies", "fifo,srtf", *kept).out.split())
    saved = actual["mean_jct_s"] - srtf["mean_jct_s"]
    hours = [each / 3600 for each in (saved, srtf["mean_wait_s"], actual["mean_wait_s"])]
    assert (
        "Under srtf jobs would have ended {:.3g} h sooner on average, after a wait of {:.3g} h "
        "in place of {:.3g} h: 33% of them more than a round sooner, "
    ).format(*hours) in said


def test_a_table_of_jobs(here: Command, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["came", "began", "ended", "n", "team"])
        table.writerows([[0, 0, 3600, 2, "a"], [0, 3600, 7200, 2, "b"], [600, 7200, 7300, 2, "a"]])
    columns = "arrival=came,start=began,end=ended,gpus=n,tenant=team"
    asked = ("--format", "table", "--columns", columns, *FEW, "--warehouse", tmp_path / "warehouse")
    done = here("hindsight", path, *asked, "--gpus", 4)
    assert done.code == 0, done.err
    actual, fifo, _ = done.rows
    assert actual["mean_wait_s"] == pytest.approx((3600 + 6600) / 3)
    assert fifo["mean_wait_s"] == 1000  # the first two run side by side, then the third
    for gpus, problem in ((1, "1 GPUs are fewer than the 2"), (0, "0 is not positive")):
        assert_refused(here("hindsight", path, *asked, "--gpus", gpus), f"--gpus: {problem}")


@pytest.mark.parametrize(("slots", "shares"), [(0, 2), (4, 4), (1, 1)])
def test_several_gpu_types_and_shares_of_gpus(
    here: Command, tmp_path: Path, slots: int, shares: int
) -> None:
    path, warehouse = tmp_path / "jobs.csv", tmp_path / "warehouse"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["arrival", "start", "end", "gpus", "gpu_type"])
        table.writerows([[0, 0, 3600, 0.5, "a100"], [0, 0, 7200, 0.5, "a100"]])
        table.writerows([[0, 0, 3600, 2, "V100"], [600, 3600, 7200, 1, "V100"]])
    columns = ",".join(f"{name}={name}" for name in ("arrival", "start", "end", "gpus", "gpu_type"))
    asked = ("--format", "table", "--columns", columns, "--slots", slots, *FEW)
    done = here("hindsight", path, *asked, "--warehouse", warehouse)
    assert done.code == 0, done.err
    assert "leaked" not in done.err
    actual, fifo, srtf = done.rows
    assert actual["mean_wait_s"] == 3000 / 4
    # Rounded up to whole GPUs, the halves have to wait for each other.
    halves = 0 if shares > 1 else 3600
    assert fifo["mean_wait_s"] == pytest.approx((3000 + halves) / 4, abs=40)
    for each in (fifo, srtf):
        sql = "SELECT max(rho) AS rho, avg(rho) AS mean FROM job_outcomes WHERE run = '{}'"
        (stored,) = here("sql", sql.format(each["run"]), "--warehouse", warehouse, "--json").rows
        assert stored["rho"] == pytest.approx(each["worst_rho"], abs=1e-5)
        assert stored["mean"] == pytest.approx(each["mean_rho"], abs=1e-5)
    page = Path(actual["page"]).read_text(encoding="utf-8")
    assert all(said in page for said in ("1 a100 GPU and 2 V100 GPUs", "on 3 GPUs"))


def test_jobs_whose_gpu_type_the_cluster_lacks_run_on_any(here: Command, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "arrival,start,end,gpus,gpu_type\n0,0,600,1,V100\n0,9,600,1,V100\n0,0,60,1,a100\n"
    )
    columns = ",".join(f"{name}={name}" for name in ("arrival", "start", "end", "gpus", "gpu_type"))
    asked = ("--format", "table", "--columns", columns, "--warehouse", tmp_path / "warehouse")
    told = (
        "Jobs whose GPU type the cluster lacks run on any, at the speed that they had: 2 had V100."
    )
    done = here("hindsight", path, *asked, *FEW, "--pools", "a100:1x4")
    assert told in Path(done.rows[0]["page"]).read_text(encoding="utf-8")
    done = here("hindsight", path, *asked, *FEW, "--gpus", "4")
    page = Path(done.rows[0]["page"]).read_text(encoding="utf-8")
    assert "They are all alike: the log" in page
    simulated = ("simulate", "--trace", path, *asked, "--policy", "fifo", "--json")
    assert told in here(*simulated, "--pools", "a100:1x4").err.replace("\n", " ")
    assert "lacks" not in here(*simulated, "--pools", "a100:1x1,v100:1x2").err


def test_anonymous_writes_no_name(here: Command, log: Path, tmp_path: Path) -> None:
    log = log.rename(tmp_path / "qx-ann.txt")
    out = tmp_path / "out"
    asked = ("--anonymous", "--warehouse", out, "--only", "Account=qx-lab|qx-prod")
    done = here("hindsight", log, *FEW, *asked)
    assert done.code == 0, done.err
    said = [*contents(out), done.out, done.err]
    assert any("user-1" in text for text in said)
    assert any("account-2" in text for text in said)
    for name in NAMES:
        assert [text[:99] for text in said if name in text] == []


def test_errors_of_anonymous_logs_quote_nothing(here: Command, log: Path, tmp_path: Path) -> None:
    log.write_text(log.read_text().replace("|3600|", f"|{NAMES[0]}|", 1))
    refused = here("hindsight", log, *FEW, "--anonymous", "--warehouse", tmp_path / "warehouse")
    assert_refused(refused, "month.txt:2, ElapsedRaw: cannot be read")
    assert NAMES[0] not in refused.err
    plain = here("hindsight", log, *FEW, "--warehouse", tmp_path / "warehouse")
    assert_refused(plain, f"{NAMES[0]!r} is not a number")
    option = here("hindsight", log, *FEW, "--anonymous", "--zone", "Berlin")
    assert_refused(option, "--zone: 'Berlin' is not a time zone")


def test_a_log_without_starts_is_refused(here: Command, tmp_path: Path) -> None:
    path = tmp_path / "itp.csv"
    path.write_text("job_id,num_gpus,submission_time,duration\n1,2,10,60\n")
    out = tmp_path / "warehouse"
    refused = here("hindsight", path, "--format", "itp", "--warehouse", out)
    assert_refused(refused, "itp.csv: says of no job when it started")
    assert not out.exists()


@pytest.fixture
def starts() -> list[Start]:
    """A long run of each of two policies."""
    source = Source(jobs=120, seed=1)
    settings = [
        make_settings(name, ClusterSize(8), SimulationSettings()) for name in ["fifo", "srtf"]
    ]
    return [make_start(open_workload(source, one), one) for one in settings]


def ended(warehouse: Path) -> list[Path]:
    return list(warehouse.rglob(WHOLE))


def test_a_run_that_fails_stops_the_others(starts: list[Start], tmp_path: Path) -> None:
    broken = replace(starts[0], workload=replace(starts[0].workload, truths=()))
    with pytest.raises(InputError, match="truth"):
        run_policies([broken, starts[1]], tmp_path)
    assert ended(tmp_path) == []


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_a_stopped_comparison_is_continued(starts: list[Start], tmp_path: Path, how: str) -> None:
    starts = starts[:1]

    def stop(done: int, total: int, *, left: float) -> None:
        if done and how == "interrupted":
            raise KeyboardInterrupt
        if done:
            multiprocessing.active_children()[0].kill()

    with pytest.raises(ShockwaveError, match=f"{how}.*run it again: it continues"):
        run_policies(starts, tmp_path, stop)
    (begun,) = (tmp_path / "campaigns" / "cells").glob("*.run")
    run = begun.read_text()
    assert ended(tmp_path) == []
    seen = list[tuple[int, float]]()
    again = run_policies(starts, tmp_path, lambda done, total, *, left: seen.append((done, left)))
    assert again == [run]
    assert len(ended(tmp_path)) == 1
    # The jobs of the stopped process say nothing of this one's pace.
    assert next(left for done, left in seen if done) == 0


def test_the_time_left_follows_the_slowest_run() -> None:
    def estimate(spent: list[float], shares: list[float]) -> float:
        return estimate_left(spent, shares, shares, workers=2)

    assert estimate([0, 0, 0], [0, 0, 0]) == 0
    assert estimate([10, 10, 0], [0.05, 1, 0]) == pytest.approx(190)
    assert estimate([10, 10, 0], [0.5, 0.5, 0]) == pytest.approx((10 + 10 + 20) / 2)
    assert estimate([200, 10, 20], [1, 1, 1]) == 0


def test_the_pace_of_a_resumed_run_is_that_since_it_was_resumed() -> None:
    # A tenth in 10 s, and three tenths are left.
    assert estimate_left([10.0], [0.1], [0.7], 1) == pytest.approx(30.0)


def test_policies_and_parameters_are_checked_first(here: Command, tmp_path: Path) -> None:
    missing = tmp_path / "missing.txt"
    for asked, said in (
        (("--policies", "fifo,fifo"), "twice"),
        (("--policies", "fivo"), "unknown policy"),
        (("--policies", "fifo", "--set", "lateness=3"), "is a parameter of none"),
    ):
        assert_refused(here("hindsight", missing, *asked), said)
    assert_refused(here("hindsight", missing, "--warehouse", tmp_path / "w"), "No such file")
