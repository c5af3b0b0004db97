"""Whole runs and services of real training jobs in containers."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX, socket

import pytest

from containers.docker.nodes import Gpu, Nodes
from containers.docker.rendering import container_name
from flows.api.authorization import AuthorizedApi, open_local
from flows.api.client import Client
from flows.api.commands import ServiceCommands
from flows.api.job_logs import check_has_logs, read_logs
from flows.api.rows import censor
from flows.explain.replay import replay
from flows.runs.cluster_file import read_cluster_file
from flows.runs.code_version import list_packages
from flows.runs.live import resume_live, run_live
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from flows.scheduler.options import ServiceOptions
from flows.web.page.views import make_log_page, open_logs
from harness.dockerd import (
    COUNTING,
    STUBBORN,
    Dockerd,
    cluster,
    mounts,
    node_table,
    with_slots,
)
from harness.faults.jobs import workload
from harness.waiting import HANG_SECONDS
from predictor.errors import InputError, WarehouseBusy
from tasks.commands import CommandKind
from tasks.record import RuntimeKind, Settings, make_pool
from tests.containers.driver import job, long, losses
from tests.flows.served import SECRET, drive, head, served
from tests.flows.test_live_page import Browser
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Token
from warehouse.store.audit import audit
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer


def write_options(folder: Path, text: str, round_seconds: float = 2.0) -> ServiceOptions:
    """Write a cluster file and the profile of a model; returns the options of a service on them."""
    (file := folder / "cluster.toml").write_text(text)
    rates = {f"('Recommendation (batch size 32)', {gpus})": {"null": 40.0} for gpus in (1, 2)}
    (profile := folder / "profile.json").write_text(json.dumps({"cpu": rates}))
    return ServiceOptions(
        cluster=file,
        profile=profile,
        round_seconds=round_seconds,
        restart_seconds=round_seconds / 3,
        driver="plain",
    )


def test_a_run_goes_on_with_the_images_that_it_began_with(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    name = "changing:latest"
    daemon.add_image(name, ["true"])
    nodes = cluster(daemon, storage, image=name)
    settings = Settings(
        "srtf", make_pool(4, 4), round_seconds=1.0, restart_seconds=0.5, runtime=RuntimeKind.DOCKER
    )
    run = run_live(make_start(workload(jobs=[0]), settings), nodes, tmp_path, rounds=1)
    first = daemon.client().images.get(name).id
    (node,) = nodes.nodes
    made = Reader(tmp_path).packages(run)
    assert [part.version for part in made if part.name == "image of one"] == [first]
    own = {"label": f"shockwave.run={run}"}  # other tests leave containers there
    found = daemon.client().containers.list(all=True, filters=own)
    began = {container.image.id for container in found}
    assert began <= {first}
    daemon.add_image(name, ["false"])  # another image has the tag from now on
    with pytest.raises(InputError) as refused:
        resume_live(run, nodes, tmp_path, rounds=1)
    second = daemon.client().images.get(name).id
    assert str(refused.value) == (
        f"node one: its image {name} is {second}, not the one that the run began with; "
        f'name that one in the cluster file: image = "{first}"'
    )
    named = replace(nodes, nodes=(replace(node, image=first),))
    assert resume_live(run, named, tmp_path, rounds=1) == run
    daemon.remove_containers()
    assert audit(tmp_path, run).findings == ()


def test_elastic_jobs_grow_and_shrink_in_containers(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    (trace := tmp_path / "jobs.toml").write_text(
        """
        [[jobs]]
        model = "Recommendation"
        batch_size = 32
        epochs = 40
        samples_per_epoch = 640
        min_gpus = 1
        max_gpus = 4

        [[jobs]]
        model = "Recommendation"
        batch_size = 32
        epochs = 10
        samples_per_epoch = 640
        scale_factor = 2
        arrival_seconds = 1
        """
    )
    rates = {
        f"('Recommendation (batch size 32)', {gpus})": {"null": 20.0 * gpus} for gpus in (1, 2, 4)
    }
    (profile := tmp_path / "profile.json").write_text(json.dumps({"cpu": rates}))
    jobs = Source(trace=trace, format="jobs", profile=profile).open()
    settings = Settings(
        "shockwave", make_pool(4, 4), round_seconds=2.0, restart_seconds=0.5, runtime="docker"
    )
    nodes = with_slots(cluster(daemon, storage), 0.5)
    name = run_live(make_start(jobs, settings), nodes, tmp_path / "runs")
    records = [record for record, _ in Reader(tmp_path / "runs").records(name)]
    sizes = {
        job: [len(lease.gpus) for r in records for lease in r.leases if lease.job_id == job]
        for job in (0, 1)
    }
    assert set(sizes[1]) == {2}
    assert sizes[0][0] == 4
    assert len(set(sizes[0])) > 1
    trained = losses(nodes, name, 0)
    assert [*trained] == list(range(40))
    assert {len(values) for values in trained.values()} == {1}
    assert audit(tmp_path / "runs", name).findings == ()
    assert replay(name, tmp_path / "runs").differences == []


@pytest.mark.slow
def test_a_run_goes_on_where_it_began_and_nowhere_else(tmp_path: Path) -> None:
    nodes = cluster(Dockerd(tmp_path / "no-daemon", None, 0), tmp_path / "jobs")  # type: ignore[arg-type]
    settings = Settings(
        "srtf", make_pool(4, 4), round_seconds=1.0, restart_seconds=0.5, runtime=RuntimeKind.DOCKER
    )
    start = make_start(workload(), settings)
    name = run_live(start, nodes, tmp_path / "w", rounds=1)

    def again(nodes: Nodes) -> None:
        resume_live(name, nodes, tmp_path / "w", rounds=1)

    with pytest.raises(InputError, match=f"other: has no files of run {name}"):
        again(replace(nodes, storage=tmp_path / "other"))
    (node,) = nodes.nodes
    for changed in (replace(node, name="two"), replace(node, gpus=(Gpu(cpus=2.0),) * 4)):
        with pytest.raises(InputError, match="cluster: its nodes differ from those recorded in"):
            again(replace(nodes, nodes=(changed,)))
    with Writer(
        tmp_path / "v", start, packages=list_packages(start.header.settings)
    ) as writer:  # and it died
        begun = writer.run
    assert resume_live(begun, nodes, tmp_path / "v", rounds=1) == begun
    # The same run of another warehouse does not take the folders that this one's jobs have.
    other = run_live(start, nodes, tmp_path / "x", rounds=1)
    assert (name[-2:], other) == ("-1", f"{name[:-1]}2")
    (nodes.storage / other / "nodes.json").unlink()
    with pytest.raises(InputError, match=f"jobs: has no files of run {other}"):
        resume_live(other, nodes, tmp_path / "x", rounds=1)
    again(replace(nodes, nodes=(replace(node, endpoint=f"unix://{tmp_path}/moved"),)))
    assert [record.round for record, _ in Reader(tmp_path / "w").records(name)] == [0, 1]


def test_a_run_takes_no_container_of_another_warehouse_for_its_own(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    """Of the same settings, and with a storage of its own, where no folder has the name."""
    start = make_start(
        workload(jobs=[0]), Settings("srtf", make_pool(4, 4), runtime=RuntimeKind.DOCKER)
    )
    slow = with_slots(cluster(daemon, storage / "first"), 0.25)
    first = run_live(start, slow, tmp_path / "w", rounds=1)
    nodes, other = cluster(daemon, storage / "second"), tmp_path / "x"
    with pytest.raises(WarehouseBusy, match=f"node one: runs jobs of run {first}"):
        run_live(start, nodes, other, rounds=1)
    assert not list(other.rglob("run=srtf-*")), "nothing is half-begun"
    for container in daemon.containers(first):
        container.kill()
        container.wait()
    assert run_live(start, nodes, other, rounds=1) == f"{first[:-1]}2"
    daemon.remove_containers()


def test_a_host_is_added_to_a_service_and_another_removed(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    first = head(storage)
    one, two, three = (
        node_table(name, daemon.endpoint, image=COUNTING) for name in ("one", "two", "three")
    )
    options, file = write_options(tmp_path, first + one, 3.0), tmp_path / "cluster.toml"

    def go(rounds: int) -> str:
        return drive(tmp_path, inbox, options, rounds)

    with Inbox(tmp_path) as inbox:
        inbox.submit(long(0))
        name = go(1)
        with ServiceCommands(tmp_path) as commands:
            assert commands.list_jobs()[0].held_gpus == (0,)
            with pytest.raises(InputError, match="name: 'two' is not in the cluster file"):
                commands.add_node({"name": "two"})
            file.write_text(first + two + one)  # numbers are those of the order in which they came
            commands.add_node({"name": "two"})
            commands.command(CommandKind.REMOVE, "one")
            go(2)
            assert [(row.node, row.name) for row in commands.list_nodes()] == [(1, "two")]
            assert (commands.find_node("two"), commands.find_node("1")) == (1, 1)
            with pytest.raises(InputError, match="node: there is no node 'one'"):
                commands.find_node("one")
            assert commands.list_jobs()[0].held_gpus == (1,)
            with pytest.raises(InputError, match="name: node one is or was part of the cluster"):
                commands.add_node({"name": "one"})
            # The removed host may be in the file or not; it is not held to its image any more.
            file.write_text(first + two + one.replace(COUNTING, "shockwave-test:moved"))
            go(1)
            file.write_text(first + two + three)
            left = {"shockwave.run": name, "shockwave.node": "one"}
            volumes = [f"{path}:{path}:ro" for path in mounts()]
            daemon.client().containers.run(STUBBORN, detach=True, labels=left, volumes=volumes)
            commands.add_node({"name": "three"})
            go(1)
            (refused,) = (event for event in commands.list_events() if "three" in event.reason)
            assert "still runs jobs of node one, which was removed" in refused.reason
            assert [row.node for row in commands.list_nodes()] == [1]
            file.write_text(first + two)
            assert commands.list_jobs()[0].held_gpus == (1,)
            assert commands.list_jobs()[0].status == "runs"
            commands.command(CommandKind.CANCEL, "1")
            go(2)
            assert commands.list_jobs()[0].status == "withdrawn"
    records = [record for record, _ in Reader(tmp_path).records(name)]
    assert not [event for record in records for event in record.finished if event.kind == "lost"]
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []
    daemon.remove_containers()


def test_tenants_do_not_see_how_a_host_is_reached(tmp_path: Path) -> None:
    node = node_table("one", f"unix://{tmp_path}/none")
    options = write_options(tmp_path, head(tmp_path / "jobs") + node, 1.0)
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(long(0), tenant="a"))
        drive(tmp_path, inbox, options)
        with ServiceCommands(tmp_path) as commands:
            api = AuthorizedApi(commands, Token("t", Role.TENANT, "a"))
            (row,), (seen,) = commands.list_nodes(), api.list_nodes()
            assert row.problem == "it does not answer: No such file or directory"
            assert seen.problem == "it does not answer"
            answer = api.explain("1")
            assert answer.supply.problems == ((0, "it does not answer"),)
    silent = "does not answer: ssh: connect to host 10.0.0.7 port 22; No route"
    for reason, censored in {
        f"node gpu-1 {silent}": "node gpu-1 does not answer",
        f"its node {silent}": "its node does not answer",
        f"node 3 is out of service: it {silent}": "node 3 is out of service: it does not answer",
        f"drained; its container could not be ended: {silent}": (
            "drained; its container could not be ended"
        ),
        f"exited with code 1: rank 3 {silent}": f"exited with code 1: rank 3 {silent}",
    }.items():
        assert censor(reason, set()) == censored


def test_a_full_storage_drains_all_nodes_until_there_is_room(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    node = node_table("one", daemon.endpoint, image=COUNTING)

    def go(least_free: str, rounds: int) -> str:
        text = f'{head(storage)}least_free = "{least_free}"\n{node}'
        return drive(tmp_path, inbox, write_options(tmp_path, text), rounds)

    with Inbox(tmp_path) as inbox:
        inbox.submit(long(0))
        name = go("900000000t", 1)
        with ServiceCommands(tmp_path) as commands:
            (row,) = commands.list_nodes()
            assert (row.drained, row.held_gpus) == (True, ())
            assert row.problem.startswith("the storage has ")
            assert f"Node 0 (from 0) is out of service: {row.problem}." in str(commands.explain(1))
            go("1m", 2)
            (row,) = commands.list_nodes()
            assert (row.drained, row.held_gpus, row.problem) == (False, (0,), "")
            go("900000000t", 1)
            (row,) = commands.list_nodes()
            assert (row.drained, row.held_gpus) == (True, ())
            (end,) = (event for event in commands.list_events() if event.kind == "preempted")
            assert end.reason.startswith(f"node 0 is out of service: {row.problem}")
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []
    daemon.remove_containers()


def test_a_service_takes_a_new_image_by_command_and_earlier_jobs_keep_theirs(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    tag = "upgraded:latest"
    node = node_table("one", daemon.endpoint, slots=3, image=tag)
    options = write_options(tmp_path, head(storage) + node, round_seconds=1.0)

    def images(run: str) -> dict[str, str]:
        found = daemon.containers(run)
        return {container.labels["shockwave.job"]: container.image.id for container in found}

    daemon.add_image(tag, ["sh", "-c", "sleep 600"])
    first = daemon.client().images.get(tag).id
    with Inbox(tmp_path) as inbox:
        inbox.submit(long(0))
        name = drive(tmp_path, inbox, options)
        daemon.add_image(tag, ["sh", "-c", "sleep 601"])
        second = daemon.client().images.get(tag).id
        inbox.submit(long(0))
        drive(tmp_path, inbox, options)  # another image has the tag, which changes nothing
        with ServiceCommands(tmp_path) as commands:
            (change,) = commands.command(CommandKind.IMAGE, "one", by="ann")
            inbox.submit(long(0))
            drive(tmp_path, inbox, options, 2)
            for _ in range(2):  # the second time after a restart
                found = images(name)
                assert set(found.values()) == {first, second}
                assert {job: found[job] for job in found if int(job) < change.number} == {
                    job: first for job in found if int(job) < change.number
                }
                drive(tmp_path, inbox, options, 3)
            (event,) = (row for row in commands.list_events() if row.kind == "image")
        assert event.reason == f"node 0 {second}"
    daemon.remove_containers()
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []


def test_a_service_runs_in_containers_what_it_is_handed_and_goes_on(
    daemon: Dockerd, storage: Path, tmp_path: Path
) -> None:
    node = node_table("one", daemon.endpoint, slots=2, image=COUNTING)
    options, file = write_options(tmp_path, head(storage) + node), tmp_path / "cluster.toml"
    with Inbox(tmp_path) as inbox:
        inbox.submit(job(0, epochs=4, samples=320))
        name = drive(tmp_path, inbox, options)
        foreign = replace(job(0), image="somebody/else:1")
        inbox.submit(foreign)
        cancelled = inbox.submit(long(0))
        with ServiceCommands(tmp_path) as commands:
            with pytest.raises(InputError, match=r"^image: somebody/else:1 is none of the images"):
                commands.submit(foreign)
            reader = Reader(tmp_path)
            check_has_logs(reader, name, 1)
            with pytest.raises(InputError, match="job 3: has not started; see shockwave why 3"):
                check_has_logs(reader, name, cancelled.number)
            (while_it_runs,) = read_logs(read_cluster_file(file), name, 1)
            while commands.list_jobs()[0].status != "finished":
                assert commands.get_status().running + commands.get_status().waiting, (
                    commands.list_jobs()
                )
                drive(tmp_path, inbox, options)
            inbox.command(CommandKind.CANCEL, cancelled.number)
            drive(tmp_path, inbox, options, 2)
            rows = commands.list_jobs()
    assert [row.status for row in rows] == ["finished", "refused", "withdrawn"]
    assert "somebody/else:1 is none of the images" in rows[1].reason
    heading, *_ = while_it_runs.splitlines()
    kept = b"".join(read_logs(read_cluster_file(file), name, 1))
    assert heading == f"--- {container_name(name, 1, 0, 0)}".encode()
    assert kept.startswith(while_it_runs.rstrip()), (while_it_runs, kept)
    with served(tmp_path) as url, Client(url, SECRET) as there, open_local(tmp_path) as own:
        assert b"".join(there.read_logs("1")) == b"".join(own.read_logs("1")) == kept
        for api in (there, own):  # it has ended, and so does following it
            assert b"".join(api.read_logs("1", follow=True)) == kept
        assert [found.epoch for found in there.get_job_history("1").losses] == [0, 1, 2, 3]
        shown = make_log_page(*open_logs(own, "1"))
        assert (shown["text"].encode(), shown["cut"]) == (kept, False)
        _a_host_that_is_silent_holds_up_its_log_page_alone(file, daemon, url, there)
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []
    daemon.remove_containers()


def _a_host_that_is_silent_holds_up_its_log_page_alone(
    file: Path, daemon: Dockerd, url: str, there: Client
) -> None:
    with socket(AF_UNIX) as silent, ThreadPoolExecutor(1) as pool:
        silent.settimeout(HANG_SECONDS)
        silent.bind(str(path := file.with_name("silent")))
        silent.listen()
        file.write_text(file.read_text().replace(daemon.endpoint, f"unix://{path}"))
        browser = Browser(url)
        with browser.client:
            browser.log_in(SECRET)
            page = pool.submit(browser.get, "/live/jobs/1/logs", timeout=HANG_SECONDS)
            asked, _ = silent.accept()
            with asked:
                assert asked.recv(2**16)
                assert there.get_status().ended == 2
                asked.setblocking(False)
                with pytest.raises(BlockingIOError):
                    asked.recv(1)  # it still waits for the host
            silent.close()
            assert "--- " in page.result().text
