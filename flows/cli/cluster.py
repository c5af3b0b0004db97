"""Commands about Docker hosts."""

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from flows.cli.options import (
    DriverName,
    DriverOption,
    HistoryOption,
    Json,
    Policy,
    SetOption,
    Warehouse,
    expand_settings,
    parse_parameters,
)
from flows.cli.output import print_rows
from flows.cli.progress import get_progress
from flows.cli.simulate import open_driver, parse_history, print_summary
from flows.runs.settings import DEFAULT_POLICY, RunSettings, make_settings
from flows.runs.workload_source import Source
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE

ClusterToml = Annotated[Path, typer.Option(help="Cluster file (TOML): Docker hosts, or a Slurm.")]


@expand_settings(source=Source, settings=RunSettings)
def run(
    source: Source,
    cluster: ClusterToml,
    settings: RunSettings,
    policy: Policy = DEFAULT_POLICY,
    parameters: SetOption = None,
    history: HistoryOption = None,
    driver: DriverOption = DriverName.PLAIN,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Run a trace in containers until its last job ends."""
    started = perf_counter()
    from containers.docker.checking import check_before_run
    from containers.docker.nodes import Nodes
    from flows.runs.cluster_file import describe_machines, read_cluster
    from flows.runs.default_profile import add_default_profile
    from flows.runs.live import run_live
    from flows.runs.start import make_start, read_past_jobs

    if source.trace is None:
        raise InputError("trace", "missing: generated jobs cannot be trained", "give a job trace")
    nodes = read_cluster(cluster)
    machines, kind = describe_machines(nodes)
    start = make_start(
        add_default_profile(source, nodes).open(nodes.gpus, nodes.inventory.types),
        make_settings(
            policy,
            machines,
            settings,
            parameters=parse_parameters(parameters),
            seed=source.seed,
            runtime=kind,
        ),
        read_past_jobs(warehouse, parse_history(warehouse, history)),
    )
    if isinstance(nodes, Nodes):
        check_before_run(nodes)
    with open_driver(driver) as call:
        name = run_live(
            start, nodes, warehouse, driver=call, progress=get_progress().count_jobs(start)
        )
    print_summary(warehouse, [name], perf_counter() - started, as_json)


def profile(
    cluster: ClusterToml,
    out: Annotated[Path, typer.Option(help="Table to write, or to extend if it exists.")],
    trace: Annotated[
        Path | None, typer.Option(help="Job trace: measure all combinations that its jobs can use.")
    ] = None,
    models: Annotated[str, typer.Option(help="Models to measure: MODEL,…")] = "",
    batch_sizes: Annotated[
        str, typer.Option(help="Batch sizes to measure for each model: SIZE,…")
    ] = "",
    scale_factors: Annotated[
        str, typer.Option(help="GPU counts to measure for each model: COUNT,…")
    ] = "1",
    epochs: Annotated[
        int, typer.Option(min=2, help="Epochs per combination; the first one warms up.")
    ] = 5,
    steps: Annotated[
        int,
        typer.Option(min=1, help="Training steps per epoch; fewer if a job's own epoch has fewer."),
    ] = 10,
    together: Annotated[
        bool,
        typer.Option("--together", help="Fill the cluster, instead of one combination at a time."),
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Also measure pairs of them on the same GPUs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure throughputs by training, for the predictor."""
    from containers.docker.checking import check_before_run, describe_machine
    from containers.docker.nodes import Node, Nodes
    from containers.slurm.checking import describe_slurm
    from flows.runs.cluster_file import read_cluster
    from flows.runs.pair_profiling import add_pairs, list_pairs, measure_pairs
    from flows.runs.profiling import (
        describe_method,
        make_table,
        measure,
        parse_combinations,
        read_table,
        write_table,
    )

    wanted = parse_combinations(trace, models, batch_sizes, scale_factors)
    nodes = read_cluster(cluster)
    before = read_table(out, nodes.inventory.types)
    hosts = nodes if isinstance(nodes, Nodes) else None
    if hosts:
        check_before_run(hosts)
    elif pairs:
        raise InputError("pairs", "cannot be measured: Slurm shares no GPU", "leave it out")
    rows = []
    for kind in nodes.inventory.types:
        node = next(node for node in nodes.nodes if node.gpu_type == kind)
        # Queried before measuring: results are not lost if the host stops responding.
        about = {
            **(describe_machine(node) if isinstance(node, Node) else describe_slurm(node)),
            "method": describe_method(epochs, steps, together=together),
        }
        show = get_progress().count("measuring", "combinations")
        results = measure(
            nodes,
            wanted,
            epochs=epochs,
            steps=steps,
            together=together,
            gpu_type=kind,
            progress=show,
        )
        if not all(measured.problem for measured in results):
            before = make_table(results, node, about, before)
            write_table(out, before)
        rows += [{"gpu_type": kind, **measured.row} for measured in results]
        if hosts and pairs:
            alone = [measured.combination for measured in results if not measured.problem]
            both = measure_pairs(
                hosts,
                list_pairs(alone),
                epochs=epochs,
                steps=steps,
                gpu_type=kind,
                progress=get_progress().count("measuring", "pairs"),
            )
            with closing(both):
                for pair in both:  # what is measured is not lost if a later pair is stopped
                    before = add_pairs(before, [pair], kind)
                    write_table(out, before)
                    rows += [{"gpu_type": kind, **row} for row in pair.rows]
    print_rows(rows, as_json)
    if any(row["problem"] for row in rows):
        raise typer.Exit(1)


def pull(
    cluster: Annotated[Path, typer.Argument(help="Cluster file (TOML).")],
    images: Annotated[
        list[str] | None, typer.Argument(help="Images; by default those of the nodes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Pull images on the hosts of a cluster file."""
    from containers.docker.checking import pull_images
    from flows.runs.cluster_file import read_cluster_file

    findings = pull_images(read_cluster_file(cluster), images or ())
    print_rows([asdict(finding) for finding in findings], as_json)
    if not all(finding.sound for finding in findings):
        raise typer.Exit(1)


def check(
    cluster: Annotated[Path, typer.Argument(help="Cluster file (TOML).")],
    as_json: Json = False,
) -> None:
    """Check that the machines of a cluster file can run jobs."""
    from containers.docker import checking
    from containers.slurm import checking as slurm_checking
    from containers.slurm.cluster import SlurmCluster
    from flows.runs.cluster_file import read_cluster

    found = read_cluster(cluster)
    if isinstance(found, SlurmCluster):
        findings = slurm_checking.check_cluster(found)
    else:
        findings = checking.check_cluster(found)
    print_rows([asdict(finding) for finding in findings], as_json)
    if not all(finding.sound for finding in findings):
        raise typer.Exit(1)
