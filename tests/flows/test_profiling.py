"""Profiles: combinations, measurements, tables, and a run of the commands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.docker.checking import describe_machine
from containers.docker.nodes import Nodes
from containers.runtime import ContainerEvent, EventKind
from flows.runs.default_profile import PROFILES, add_default_profile
from flows.runs.pair_profiling import MeasuredPair, add_pairs, list_pairs
from flows.runs.profiling import (
    Combination,
    Measured,
    combinations_of,
    make_key,
    make_measured,
    measure,
    parse_combinations,
)
from flows.runs.profiling import make_table as table_of
from flows.runs.workload_source import Source
from harness.dockerd import COUNTING, IMAGE, Dockerd, cluster, mixed
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobSpec, Mode
from tests.flows.conftest import Command, assert_refused
from warehouse.store.reader import Reader
from warehouse.workloads.kinds import Format
from warehouse.workloads.tables import read_throughputs

ONE = Combination("LM", 16, 2)
DONE = ContainerEvent(0, EventKind.FINISHED, 20.0, (0, 1))


def test_jobs_are_measured_with_all_that_they_can_run_with() -> None:
    specs = [
        JobSpec(0, "LM", 16, 64, Demand.gang(2), Mode.GNS, 4, 100, 0.0),
        JobSpec(1, "LM", 64, 64, Demand.gang(2), Mode.STATIC, 4, 100, 0.0),
        JobSpec(2, "LM", 8, 64, Demand.gang(1), Mode.STATIC, 4, 100, 0.0),
    ]
    found = [(each.scale_factor, each.batch_size) for each in combinations_of(specs)]
    assert found == [(1, 8), (2, 16), (2, 32), (2, 64)]
    assert {each.epoch_samples for each in combinations_of(specs)} == {100}


def test_models_are_measured_with_each_batch_size_on_each_count_of_gpus() -> None:
    found = parse_combinations(None, "LM, ResNet-18", "16, 32", "1")
    assert found == tuple(
        Combination(model, size, 1) for model in ("LM", "ResNet-18") for size in (16, 32)
    )


@pytest.mark.parametrize(
    ("trace", "models", "sizes", "gpus", "message"),
    [
        (None, "", "16", "1", "trace: is needed, or models, but not both"),
        (Path("t"), "LM", "16", "1", "trace: is needed, or models, but not both"),
        (None, "LM", "", "1", "batch_sizes: '' is not a list such as 16,32"),
        (None, "LM", "16,", "1", "batch_sizes: '16,' is not a list such as 16,32"),
        (None, "LM", "16", "0", "scale_factors: '0' is not a list such as 16,32"),
        (None, "LM", "16", "-1", "scale_factors: '-1' is not a list such as 16,32"),
        (None, "LM", "1" * 20, "1", "batch_sizes: "),
    ],
)
def test_what_cannot_be_measured_is_refused(
    trace: Path | None, models: str, sizes: str, gpus: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_combinations(trace, models, sizes, gpus)
    assert str(caught.value).startswith(message)


def write(folder: Path, *lines: str, progress: str = '{"run_seconds": 15.5}') -> None:
    (folder / "telemetry.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (folder / "progress.json").write_text(progress)


def epoch(seconds: Any, steps: Any = 10) -> str:
    return json.dumps({"steps": steps, "seconds": seconds})


def test_the_rate_is_that_of_all_epochs_but_the_first_together(tmp_path: Path) -> None:
    write(tmp_path, epoch(100.0), epoch(5.0), epoch(4.0), epoch(2.0))
    found = make_measured(ONE, DONE, tmp_path, 20.0, 10)
    assert found == Measured(ONE, 30 / 11, 1.5, 4.5)


def test_short_epochs_warm_up_together_and_all_of_many_are_read(tmp_path: Path) -> None:
    short = replace(ONE, epoch_samples=64)  # four steps
    many = [epoch(1.0, 4)] * 30_000
    write(tmp_path, *[epoch(100.0, 4)] * 3, *many)
    assert make_measured(short, DONE, tmp_path, 20.0, 10).steps_per_second == 4.0


GARBLED = {
    "torn": [epoch(1.0), epoch(1.0)[:-4]],
    "no JSON": [epoch(1.0), "x"],
    "a list": [epoch(1.0), "[]"],
    "no seconds": [epoch(1.0), '{"steps": 3}'],
    "a text": [epoch(1.0), epoch("1")],
    "no time": [epoch(1.0), epoch(0)],
    "no step": [epoch(1.0), epoch(1.0, 0)],
    "below zero": [epoch(1.0), epoch(-1.0)],
    "not a number": [epoch(1.0), epoch(float("nan"))],
    "huge": [epoch(1.0), epoch(1e-300, 10**300)],
    "deep": [epoch(1.0), "[" * 50_000],
    "one line": [epoch(1.0)],
    "nothing": [],
}


@pytest.mark.parametrize("kind", GARBLED)
def test_garbled_telemetry_is_a_problem(tmp_path: Path, kind: str) -> None:
    write(tmp_path, *GARBLED[kind])
    found = make_measured(ONE, DONE, tmp_path, 20.0, 10)
    assert found == Measured(ONE, problem="its report of epochs is missing or garbled")


@pytest.mark.parametrize("progress", ["", "{}", "[]", '{"run_seconds": "x"}', "NaN"])
def test_garbled_progress_is_a_problem(tmp_path: Path, progress: str) -> None:
    write(tmp_path, epoch(1.0), epoch(1.0), progress=progress)
    assert make_measured(ONE, DONE, tmp_path, 20.0, 10).problem
    (tmp_path / "progress.json").unlink()
    assert make_measured(ONE, DONE, tmp_path, 20.0, 10).problem


def test_a_job_that_crashed_is_a_problem(tmp_path: Path) -> None:
    crashed = replace(DONE, kind=EventKind.CRASHED, reason="exit code 1: no such model")
    assert make_measured(ONE, crashed, tmp_path, 20.0, 10).problem == "exit code 1: no such model"


def nodes_of(daemon: Dockerd, storage: Path, gpus: int = 2, **options: Any) -> Nodes:
    return cluster(daemon, storage / "jobs", gpus=gpus, **options)


def test_a_table_is_added_to(daemon: Dockerd, storage: Path) -> None:
    (node,) = nodes_of(daemon, storage).nodes
    other = replace(ONE, batch_size=32)
    key, changed = "('LM (batch size 16)', 2)", "('LM (batch size 32)', 2)"
    before = {
        "v100": {key: {"null": 9.0}},
        "cpu": {key: {"null": 8.0}, changed: {"null": 7.0}},
        "measured": {"v100": {"date": "then"}, "cpu": {"entries": {key: {"spread": 0.5}}}},
    }
    found = [Measured(other, 2.0, 0.1, 3.0), Measured(replace(ONE, scale_factor=1), problem="x")]
    after = table_of(found, node, describe_machine(node), before)
    assert after["v100"] == before["v100"]
    assert after["cpu"] == {key: {"null": 8.0}, changed: {"null": 2.0}}
    assert after["measured"]["v100"] == {"date": "then"}
    about = after["measured"]["cpu"]
    assert about["entries"] == {
        key: {"spread": 0.5},
        changed: {"spread": 0.1, "restart_seconds": 3.0},
    }
    assert about["gpus"] == ["1 cpus", "1 cpus"]
    assert about["image"].startswith("shockwave-test:trainer sha256:")


def test_pairs_of_what_is_measured_again_are_dropped(daemon: Dockerd, storage: Path) -> None:
    (node,) = nodes_of(daemon, storage).nodes
    one, other, third = (replace(ONE, batch_size=size) for size in (16, 32, 64))
    first, second, last = map(make_key, (one, other, third))
    alone = {key: {"null": 8.0} for key in (first, second, last)}
    before = {"cpu": alone, "measured": {"cpu": {}}}
    rates = (5.0, 3.0)
    pairs = [MeasuredPair(pair, rates) for pair in list_pairs([one, other, third])]
    before = add_pairs(before, pairs, "cpu")
    after = table_of([Measured(one, 2.0)], node, describe_machine(node), before)
    left = [MeasuredPair(pair, rates) for pair in list_pairs([other, third])]
    assert after["cpu"] == add_pairs({"cpu": {**alone, first: {"null": 2.0}}}, left, "cpu")["cpu"]
    failed = [replace(pair, problem="out of memory") for pair in left]
    assert add_pairs(after, failed, "cpu")["cpu"] == {**alone, first: {"null": 2.0}}
    published = {**before, "measured": {}}  # whose pairs were not read, and are not now
    after = table_of([Measured(one, 2.0)], node, describe_machine(node), published)
    assert after["cpu"] == {**alone, first: {"null": 2.0}}


def test_a_combination_that_no_cluster_of_this_size_runs(daemon: Dockerd, storage: Path) -> None:
    with pytest.raises(InputError, match="LM, batch size 16, 2 GPUs: needs more than"):
        measure(nodes_of(daemon, storage, 1), [ONE], epochs=2, steps=2, together=False)


def write_cluster(path: Path, nodes: Nodes) -> Path:
    """The cluster file of some nodes."""
    mounts = ", ".join(f'"{mount}"' for mount in nodes.mounts)
    lines = [
        f'storage = "{nodes.storage}"',
        f'user = "{nodes.user}"',
        f"mounts = [{mounts}]",
        *("grace_seconds = 10", "hung_rounds = 1000"),
        *("[limits]", 'memory = "1g"', "pids = 64", 'scratch = "64m"'),
    ]
    for node in nodes.nodes:
        slots = ", ".join(f"{{ cpus = {gpu.cpus} }}" for gpu in node.gpus)
        lines += ["[[nodes]]", f'name = "{node.name}"', f'endpoint = "{node.endpoint}"']
        lines += [f'gpu_type = "{node.gpu_type}"', f'image = "{node.image}"', f"slots = [{slots}]"]
    path.write_text("\n".join(lines))
    return path


BAD_TABLES = {
    "{}}": "not valid JSON",
    "[]": "is not a JSON object",
    '{"measured": []}': "measured: is not a JSON object",
    '{"measured": {"cpu": 3}}': "cpu: is not a JSON object",
    '{"measured": {"cpu": {"entries": []}}}': "entries: is not a JSON object",
    '{"cpu": []}': "cpu: is not a JSON object",
    '{"cpu": {"LM": 3}}': "is not an entry like",
    '{"cpu": {"(\'LM\', 1)": 3}}': "('LM', 1): is not a JSON object",
}


@pytest.mark.parametrize("bad", [*BAD_TABLES, "folder", "no folder", "read-only"])
def test_a_table_that_cannot_be_added_to_is_refused_before_anything_is_measured(
    here: Command, tmp_path: Path, bad: str
) -> None:
    nodes = Dockerd(tmp_path / "no-daemon", None, 0)  # type: ignore[arg-type]
    file = write_cluster(tmp_path / "c.toml", nodes_of(nodes, tmp_path))
    out = {"no folder": tmp_path / "none" / "p.json", "read-only": Path("/proc/p.json")}.get(
        bad, tmp_path / "p.json"
    )
    if bad == "folder":
        out.mkdir()
    elif bad in BAD_TABLES:
        out.write_text(bad)
    measured = ("--models", "LM", "--batch-sizes", 16)
    ran = here("cluster", "profile", "--cluster", file, "--out", out, *measured)
    assert_refused(ran, f"error: {out}", BAD_TABLES.get(bad, ""))
    assert "Docker" not in ran.err
    assert {path.name for path in tmp_path.iterdir()} <= {"c.toml", "p.json"}


def test_the_default_profile_is_for_slots_like_those_that_it_was_measured_on(
    daemon: Dockerd, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.runs.default_profile.PROFILES", tmp_path)
    nodes, source = nodes_of(daemon, storage), Source(trace=Path("t"))
    assert add_default_profile(source, nodes) == source  # there is none
    known = tmp_path / "cpu.json"
    for share, fits in (("1 cpus", True), ("0.4 cpus", False)):
        known.write_text(json.dumps({"cpu": {}, "measured": {"cpu": {"gpus": [share] * 3}}}))
        given = replace(source, profile=Path("own"))
        assert add_default_profile(given, nodes) == given
        table = replace(source, format=Format.TABLE)  # whose jobs have a profile of their own
        assert add_default_profile(table, nodes) == table
        if fits:
            assert add_default_profile(source, nodes).profile == known
        else:
            with pytest.raises(InputError, match=r"profile: missing, and .*0.4 cpus, not of 1 c"):
                add_default_profile(source, nodes)


@pytest.mark.parametrize("known", sorted(PROFILES.glob("*.json")), ids=lambda path: path.stem)
def test_tables_that_come_with_shockwave_say_where_when_and_how(known: Path) -> None:
    about = json.loads(known.read_text())["measured"][known.stem]
    assert {"date", "docker", "system", "image", "method", "gpus"} <= about.keys()
    rates = read_throughputs(known, (known.stem,)).rates
    assert {model for model, _, _, _ in rates} == {
        *("ResNet-18", "ResNet-50", "LM", "Transformer", "Recommendation")
    }
    assert len(rates) == len(about["entries"])
    assert all(rate > 0 for rate in rates.values())


def write_trace(path: Path, jobs: int = 1) -> Path:
    """Jobs of two epochs of two steps."""
    declared = json.dumps({"samples_per_epoch": 64, "max_batch_size": 32})
    columns = ["Recommendation (batch size 32)", declared, "-", "-", "-", "4", "1", "static"]
    path.write_text(("\t".join([*columns, "1", "-", "-", "0"]) + "\n") * jobs)
    return path


def test_from_a_profile_to_a_run_and_its_end(
    here: Command, daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    counts = mixed(nodes_of(daemon, storage, image=COUNTING), 0.5)
    fast, slow = counts.nodes
    nodes = replace(counts, nodes=(replace(fast, image=IMAGE), slow))  # one type trains
    file = write_cluster(tmp_path / "c.toml", nodes)
    out, trace, records = tmp_path / "p.json", write_trace(tmp_path / "t"), tmp_path / "w"

    checked = here("cluster", "check", file, "--json")
    assert checked.code == 0, checked.out
    assert [row for row in checked.rows if not row["sound"] and row["check"] != "versions"] == []
    assert [row for row in checked.rows if row["remedy"] and row["check"] != "versions"] == []
    assert {"endpoint", "daemon", "clock", "image", "container"} <= {
        row["check"] for row in checked.rows
    }

    ran = here(
        *("cluster", "profile", "--cluster", file, "--out", out, "--models", "Recommendation"),
        *("--batch-sizes", 32, "--epochs", 2, "--steps", 2, "--pairs", "--together", "--json"),
    )
    assert ran.code == 0, ran.err
    beside = "Recommendation (batch size 32)"
    assert [(row["gpu_type"], row["batch_size"], row.get("beside")) for row in ran.rows] == [
        (kind, 32, other) for kind in ("cpu", "slow") for other in (None, beside, beside)
    ]
    assert all(row["steps_per_second"] > 0 and not row["problem"] for row in ran.rows)
    containers = daemon.client().containers.list(all=True)
    assert not [container for container in containers if "profile" in container.name]
    written = json.loads(out.read_text())
    (key,) = written["cpu"]
    assert [
        rate
        for kind in ("cpu", "slow")
        for rate in (written[kind][key]["null"], *written[kind][key][key])
    ] == [row["steps_per_second"] for row in ran.rows]
    assert written["measured"]["slow"]["gpus"] == ["0.5 cpus"]

    live = (
        *("--cluster", file, "--trace", trace, "--warehouse", records),
        *("--round-seconds", 2, "--restart-seconds", 1),
    )
    # On a busy machine the measured rates may be any.
    written["slow"][key]["null"] = written["cpu"][key]["null"] / 2
    for kind in ("cpu", "slow"):
        written[kind][key][key] = [0.8 * written[kind][key]["null"]] * 2
    out.write_text(json.dumps({**written, "v100": {}, "k80": {}}))
    ran = here("cluster", "run", *live, "--policy", "slaq", "--profile", out, "--json")
    assert ran.code == 0, ran.err
    (row,) = ran.rows
    assert (row["jobs"], row["gpus"]) == (1, 2)
    losses = [loss for record, _ in Reader(records).records(row["run"]) for loss in record.losses]
    assert [loss.epoch for loss in losses] == [0, 1]
    (lease,) = here("sql", "SELECT gpu_type FROM leases", "--warehouse", records, "--json").rows
    assert lease["gpu_type"] == "cpu"
    (job,) = (nodes.storage / row["run"]).glob("job-*[0-9]")
    lines = (job / "telemetry.jsonl").read_text().splitlines()
    assert [loss.loss for loss in losses] == [json.loads(line)["loss"] for line in lines]
    assert (job / "checkpoint.pt").exists()

    shared = tmp_path / "s.json"
    shared.write_text(json.dumps(written))
    three = ("--trace", write_trace(tmp_path / "t3", 3), "--policy", "gandiva")
    counting = ("--cluster", write_cluster(tmp_path / "counts.toml", counts))
    ran = here("cluster", "run", *live, *three, *counting, "--profile", shared, "--json")
    assert ran.code == 0, ran.err
    assert here("run", "audit", ran.rows[0]["run"], "--warehouse", records).code == 0
    (found,) = here(
        "sql", "SELECT count(*) AS jobs FROM sharing", "--warehouse", records, "--json"
    ).rows
    assert found["jobs"] >= 2

    again = here("resume", row["run"], "--cluster", file, "--warehouse", records, "--json")
    assert (again.code, again.rows[0]["rounds"]) == (0, row["rounds"])

    out.write_text(json.dumps({"v100": written["cpu"]}))
    ran = here("cluster", "run", *live, "--profile", out)
    assert_refused(ran, f"error: {out}: has no worker type 'cpu'; measure it")

    ran = here(
        *("simulate", "--gpus", 2, "--gpus-per-node", 2, "--jobs", 1, "--round-seconds", 9000),
        *("--warehouse", records, "--json"),
    )
    virtual = here(
        *("resume", ran.rows[0]["run"], "--cluster", file, "--warehouse", records, "--json")
    )
    assert_refused(virtual, "the run is on a virtual cluster")


@pytest.mark.parametrize("bad", ["image", "daemon"])
def test_a_bad_cluster_is_reported_with_remedies(
    here: Command, daemon: Dockerd, storage: Path, tmp_path: Path, bad: str
) -> None:
    nodes = nodes_of(daemon, storage)
    node = nodes.nodes[0]
    changed = {"image": {"image": "none:1"}, "daemon": {"endpoint": f"unix://{tmp_path}/s"}}[bad]
    nodes = replace(nodes, nodes=(replace(node, **changed),))  # type: ignore[arg-type]
    file = write_cluster(tmp_path / "c.toml", nodes)
    ran = here("cluster", "check", file, "--json")
    assert (ran.code, ran.err) == (1, "")
    amiss = {row["check"]: row for row in ran.rows if not row["sound"]}
    assert amiss.keys() == ({"endpoint"} if bad == "daemon" else {"image", "container"})
    assert all(row["remedy"] for row in amiss.values())
    trace = write_trace(tmp_path / "t")
    out = tmp_path / "p.json"
    for command in (("cluster", "profile", "--out", out), ("cluster", "run", "--profile", out)):
        out.unlink(missing_ok=True)
        if "run" in command:
            key = "('Recommendation (batch size 32)', 1)"
            out.write_text(json.dumps({"cpu": {key: {"null": 9.0}}}))
        ran = here(*command, "--cluster", file, "--trace", trace)
        assert_refused(ran, "error: node one: ")
