"""Public sets of traces: where they are, and what to do with what was downloaded."""

import csv
import gzip
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predictor.errors import InputError, meant
from warehouse.workloads.fields import read_text
from warehouse.workloads.kinds import Format
from warehouse.workloads.opening import check_is_file
from warehouse.workloads.published_rules import published_gns
from warehouse.workloads.regimes import COLUMNS


@dataclass(frozen=True, slots=True)
class PublicSet:
    """A public set of traces.

    Attributes:
        files: What to download.
        converts: Whether its files are converted; logs are read as they are.
    """

    about: str
    address: str
    files: str
    format: Format = Format.PUBLIC
    converts: bool = False


SETS: Mapping[str, PublicSet] = {
    "shockwave": PublicSet(
        "120 and 220 adaptive jobs of the Shockwave paper (NSDI '23)",
        "https://github.com/uw-mad-dash/shockwave",
        "the repository: a clone, or its zip archive, unpacked",
        converts=True,
    ),
    "gavel": PublicSet(
        "throughputs by GPU type, alone and in pairs (Gavel, OSDI '20)",
        "https://github.com/stanford-futuredata/gavel",
        "scheduler/simulation_throughputs.json",
        converts=True,
    ),
    "tiresias": PublicSet(
        "60 jobs and a cluster (Tiresias, NSDI '19)",
        "https://github.com/SymbioticLab/Tiresias",
        "simulator/60_job.csv and simulator/n32g4.csv",
        Format.TIRESIAS,
    ),
    "philly": PublicSet(
        "117,325 jobs of Microsoft, 2017 (ATC '19)",
        "https://github.com/msr-fiddle/philly-traces",
        "trace-data.tar.gz, in which cluster_job_log is",
        Format.PHILLY_JSON,
    ),
    "pai": PublicSet(
        "tasks of Alibaba's PAI, 2020 (NSDI '22)",
        "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2020",
        "pai_task_table.tar.gz and pai_job_table.tar.gz, into one folder",
        Format.PAI,
    ),
    "helios": PublicSet(
        "3.36 million jobs of SenseTime, 2020 (SC '21)",
        "https://github.com/S-Lab-System-Group/HeliosData",
        "data/Venus/cluster_log.csv, with Git LFS",
        Format.HELIOS,
    ),
    "acme": PublicSet(
        "880,740 jobs on large language models, 2023 (NSDI '24)",
        "https://github.com/InternLM/AcmeTrace",
        "data/job_trace/trace_seren.csv or trace_kalos.csv",
        Format.ACME,
    ),
    "itp": PublicSet(
        "69,351 jobs of ten clusters of Microsoft, 2021 (ElasticFlow, ASPLOS '23)",
        "https://github.com/microsoft/elasticflow-traces",
        "data/raw-traces.tar.gz, and unpack it: each clusterNN.csv is a trace",
        Format.ITP,
    ),
    "supercloud": PublicSet(
        "395,914 jobs of MIT, 2021 (HPEC '21)",
        "https://github.com/MIT-AI-Accelerator/MIT-Supercloud-Dataset",
        "slurm-log.csv of https://dcc.mit.edu/data (s3://mit-supercloud-dataset)",
        Format.SUPERCLOUD,
    ),
}
"""The sets, by the names that `shockwave workload fetch` accepts."""

SHOCKWAVE_FILES = {
    "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace": (
        "jobs120_gpus32.trace"
    ),
    "220_0.2_5_100_25_4_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace": (
        "jobs220_gpus64.trace"
    ),
    "tacc_throughputs.json": "tacc_throughputs.json",
    "wisr_throughputs.json": "wisr_throughputs.json",
}
"""Files of Shockwave's repository, and their names in the folder that is made."""


def find_set(name: str) -> PublicSet:
    """Find a set by its name.

    Raises:
        InputError: There is no such set.
    """
    if name not in SETS:
        raise InputError("NAME", f"there is no public set {name!r}", meant(name, [*SETS]))
    return SETS[name]


def convert(name: str, downloaded: Path, folder: Path) -> list[Path]:
    """Write what a simulation reads of a set that is not read as it is; return the files.

    Raises:
        InputError: A file is missing or invalid, or is there already.
    """
    if not find_set(name).converts:
        raise InputError("NAME", f"{name} needs no conversion", "give its files as the trace")
    folder.mkdir(parents=True, exist_ok=True)
    if name == "gavel":
        return [_flatten_throughputs(downloaded, folder / "throughputs.csv.gz")]
    written = []
    for name, kept in SHOCKWAVE_FILES.items():
        found = sorted(downloaded.rglob(name)) if downloaded.is_dir() else []
        if not found:
            problem = f"has no file {name}"
            raise InputError(str(downloaded), problem, f"give {SETS[name].files}")
        shutil.copyfile(found[0], _new(folder / kept))
        written.append(folder / kept)
    return [*written, _write_regimes(folder / "gns_regimes.csv")]


def _new(path: Path) -> Path:
    if path.exists():
        raise InputError(str(path), "is there already", "give another folder")
    return path


def _write_regimes(path: Path) -> Path:
    """Write the published regimes of GNS jobs as a table."""
    with _new(path).open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for (model, size, gpus), regimes in published_gns().items():
            starts, schedule = 0, []
            for regime in regimes:
                schedule.append(f"{starts}:{regime.batch_size}")
                starts = int(starts + regime.epochs) if regime is not regimes[-1] else starts
            table.writerow([model, size, gpus, ";".join(schedule)])
    return path


def _flatten_throughputs(downloaded: Path, path: Path) -> Path:
    """Write Gavel's throughputs as a CSV table."""
    check_is_file(downloaded)
    try:
        document = json.loads(read_text(downloaded))
        rows = [*_rates(document)]
    except (ValueError, TypeError, AttributeError, SyntaxError) as error:
        problem = f"is not a table of Gavel's throughputs ({error})"
        raise InputError(str(downloaded), problem, f"give {SETS['gavel'].files}") from None
    with gzip.open(_new(path), "wt", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        columns = "gpu_type", "job_type", "scale_factor", "partner_job_type", "steps_per_second"
        table.writerow(columns)
        table.writerows(rows)
    return path


def _rates(document: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[Any, ...]]:
    """Yield GPU type, job, GPUs, partner and rate; keys are pairs of job and GPUs, as text."""
    from ast import literal_eval

    for gpu_type, jobs in document.items():
        for key, partners in jobs.items():
            job, gpus = literal_eval(key)
            for partner, rate in partners.items():
                if partner == "null":
                    yield gpu_type, job, gpus, "", rate
                else:
                    yield gpu_type, job, gpus, literal_eval(partner)[0], rate[0]
