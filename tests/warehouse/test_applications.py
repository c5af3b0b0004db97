"""Folders of measured applications, workloads of their jobs, and their mistakes."""

from pathlib import Path

import pytest

from flows.runs.start import fit_to_cluster
from predictor.allocation import Allocation, Demand
from predictor.errors import InputError
from solver.inventory import Pool
from tasks.record import Settings
from tests.applications import FILES, write_applications, write_jobs
from warehouse.workloads.applications import read_application_jobs, read_application_profile


def refusal(folder: Path, *jobs: str, **changed: tuple[str, ...]) -> str:
    path = write_jobs(folder, *(jobs or ["a,0,toy,2,20"]))
    with pytest.raises(InputError) as caught:
        read_application_jobs(path, write_applications(folder / "apps", **changed))
    return str(caught.value).replace(f"{folder}/", "")


def test_a_job_has_its_tuned_gang_and_the_sizes_that_any_batch_allows(tmp_path: Path) -> None:
    path = write_jobs(tmp_path, "second,60,toy,2,20", "first,0,toy,1,40")
    workload = read_application_jobs(path, write_applications(tmp_path / "apps"), ("t4",))
    first, second = workload.specs
    assert (first.name, first.arrival_seconds, first.demand) == ("first", 0, Demand(1, 8, tuned=1))
    assert (second.batch_size, second.demand) == (20, Demand(1, 8, tuned=2))
    assert (second.epochs, second.total_steps) == (2, 100)
    # 62.5 and 55 steps of 1.2 s, by the noise of either epoch.
    assert workload.truths[1].isolated_seconds == pytest.approx((62.5 + 55.0) * 1.2)


@pytest.mark.parametrize(
    ("job", "told"),
    [
        ("a,0,tox,2,20", "jobs.csv:2, application: 'tox' is no measured application"),
        ("a,0,toy,2,50", "jobs.csv:2, batch_size: 50 is not 10 to 40, as toy was measured"),
        ("a,0,toy,5,20", "jobs.csv:2, num_replicas: 5 GPUs are more than toy can use"),
        ("a,-1,toy,2,20", "jobs.csv:2, time: -1.0 is not a time of 0 or more"),
        ("a,0,toy,0,20", "jobs.csv:2, num_replicas: 0 is not positive"),
    ],
)
def test_a_wrong_job_is_named(tmp_path: Path, job: str, told: str) -> None:
    assert refusal(tmp_path, job).startswith(told)


def test_a_workload_without_jobs_is_refused(tmp_path: Path) -> None:
    path, folder = write_jobs(tmp_path), write_applications(tmp_path / "apps")
    with pytest.raises(InputError, match=r"jobs\.csv: holds no jobs"):
        read_application_jobs(path, folder)


SPEEDS = "application,gpu_type,speed\ntoy,t4,1\ntoy,a100,4\ntoy,rtx,2\n"


def test_speeds_are_relative_to_the_measured_type(tmp_path: Path) -> None:
    folder = write_applications(tmp_path)
    (folder / "gpu_types.csv").write_text(SPEEDS)
    profile = read_application_profile(folder, ("t4", "a100"))
    path = write_jobs(tmp_path, "a,0,toy,2,20")
    (spec,) = read_application_jobs(path, folder, ("t4", "a100")).specs
    assert profile.reference(spec) == Allocation("a100", 2)  # the fastest
    measured = profile.rate(spec, 20, Allocation("t4", 2))
    assert profile.rate(spec, 20, Allocation("a100", 2)) == pytest.approx(4 * measured)
    without = read_application_profile(folder, ("rtx", "a100"))  # without the measured type
    assert without.rate(spec, 20, Allocation("rtx", 2)) == pytest.approx(2 * measured)
    assert without.rate(spec, 20, Allocation("a100", 2)) == pytest.approx(4 * measured)


def test_missing_speeds_are_named(tmp_path: Path) -> None:
    folder = write_applications(tmp_path)
    with pytest.raises(InputError, match=r"the cluster has t4, v100; add gpu_types\.csv"):
        read_application_profile(folder, ("t4", "v100"))
    (folder / "gpu_types.csv").write_text(SPEEDS)
    with pytest.raises(InputError, match=r"gpu_types\.csv: has no speed of toy on v100"):
        read_application_profile(folder, ("t4", "v100"))


def replaced(file: str, line: int, text: str) -> dict[str, tuple[str, ...]]:
    lines = list(FILES[file])
    lines[line] = text
    return {file.removesuffix(".csv"): tuple(lines)}


@pytest.mark.parametrize(
    ("file", "line", "text", "told"),
    [
        ("placements.csv", 1, "toy,1x,5,1,0", "placements.csv:2, placement: '1x' is not a digit"),
        ("placements.csv", 1, "toy,1,5,1,1", "placements.csv:2, sync_time: 1.0 is not a part of"),
        ("validation.csv", 1, "toy,10,0,100,1,1,1,0", "validation.csv:2, grad_var: '0' is not a"),
        ("validation.csv", 2, "toy,10,1,100,1,1,1,3", "toy at batch size 10 has an epoch without"),
        ("validation.csv", 2, "toy,10,2,200,1,1,1,3", "toy at batch size 10 lacks epochs up to 2"),
        ("applications.csv", 1, "toy,10,4,5,20,2", "the limits of toy are below their minimum"),
        ("applications.csv", 1, "tic,10,40,5,20,2", "tic has no measured epochs"),
    ],
)
def test_a_wrong_measurement_is_named(
    tmp_path: Path, file: str, line: int, text: str, told: str
) -> None:
    assert told in refusal(tmp_path, **replaced(file, line, text))


def test_measurements_are_of_one_gpu_type(tmp_path: Path) -> None:
    path, folder = write_jobs(tmp_path, "a,0,toy,2,20"), write_applications(tmp_path / "apps")
    with pytest.raises(InputError, match="measured on one GPU type, and the cluster has t4, v100"):
        read_application_jobs(path, folder, ("t4", "v100"))


def test_a_tuned_gang_has_at_most_the_gpus_of_a_type(tmp_path: Path) -> None:
    path = write_jobs(tmp_path, "a,0,toy,8,40", "b,0,toy,1,40")
    settings = Settings("srtf", (Pool("t4", 2, 2),))
    workload = read_application_jobs(path, write_applications(tmp_path / "apps"), ("t4",))
    _, fitted = fit_to_cluster(workload, settings)
    assert [spec.demand for spec in fitted.specs] == [Demand(1, 8, tuned=2), Demand(1, 8, tuned=1)]
    first, second = fitted.truths
    # 32.5 and 43.75 steps of 2.2 s, by the noise of either epoch.
    assert first.isolated_seconds == pytest.approx(2.2 * (32.5 + 43.75))
    assert second == workload.truths[1]
    assert fitted.tell_changes() == (
        "1 job was tuned to more GPUs than the cluster has; it is tuned to all of its GPUs instead."
    )
    assert not workload.tell_changes()
    lacks = tuple(line for line in FILES["placements.csv"] if not line.startswith("toy,2,"))
    folder = write_applications(tmp_path / "apps", placements=lacks)
    workload = read_application_jobs(path, folder, ("t4",))
    told = r"jobs\.csv:2, job 0: is reduced to 2 of 8 GPUs, and toy was not measured on 2 GPUs"
    with pytest.raises(InputError, match=told):
        fit_to_cluster(workload, settings)
