"""Jobs of any kind in TOML files."""

import json
import tomllib
from pathlib import Path

import pytest

from flows.runs.job_fields import FieldKind, list_job_fields
from flows.runs.job_file import JobFile, JobsFile, read_job
from flows.runs.workload_source import Source
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, Regime
from predictor.throughput import Profile
from tasks.sources import Workload

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
OPAQUE = """
kind = "opaque"
name = "sweep"
image = "python:3-slim"
command = ["python", "-c", "print('hello; $HOME')"]
max_seconds = 600
scale_factor = 2
seconds = 450.5
environment = { SEED = "7", EMPTY = "" }
"""
NOTHING = Workload("none", (), (), Profile({}))


def read(path: Path, text: str) -> object:
    path.write_text(text)
    return read_job(path, 3, 60.0, NOTHING)


def test_an_opaque_job_declares_what_it_runs_and_for_how_long(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(OPAQUE)
    spec, truth = read_job(path, 3, 60.0, NOTHING)
    assert (spec.kind, spec.name, spec.max_seconds) == (JobKind.OPAQUE, "sweep", 600.0)
    assert spec.command == ("python", "-c", "print('hello; $HOME')")
    assert spec.environment == ("SEED=7", "EMPTY=")
    assert (spec.demand.least, spec.job_id, spec.arrival_seconds) == (2, 3, 60.0)
    assert (truth.isolated_seconds, truth.targets) == (450.5, (Regime(1, 1),))


def test_a_timed_job_may_have_a_command_only(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('kind = "opaque"\nmax_seconds = 600\ncommand = ["true"]\n')
    spec, _ = read_job(path, 3, 60.0, NOTHING)
    assert (spec.image, spec.command) == ("", ("true",))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("", "max_seconds: is missing; give the seconds"),
        ("max_seconds = 600", "image: is missing; give the image"),
        ('max_seconds = 600\nimage = "a"\nepochs = 3', "epochs: is of adaptive jobs only"),
        ('max_seconds = 600\nimage = "a b"', "image: 'a b' is not an image"),
        ('max_seconds = 600\nimage = "a"\ncommand = "sleep 5"', "command: 'sleep 5' is refused"),
        ('max_seconds = 600\nimage = "a"\nname = "../x"', "name: '../x' is not a name"),
        ('max_seconds = 600\nimage = "a"\nseconds = 0', "seconds: 0 is refused"),
        (
            'max_seconds = 600\nimage = "a"\nenvironment = { NVIDIA_VISIBLE_DEVICES = "all" }',
            "environment: NVIDIA_VISIBLE_DEVICES is set by the scheduler; leave it out",
        ),
    ],
)
def test_what_a_timed_job_lacks_or_cannot_have_is_refused(
    tmp_path: Path, changed: str, said: str
) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path / "job.toml", f'kind = "checkpointing"\n{changed}')
    assert str(refused.value).startswith(f"{tmp_path / 'job.toml'}: ")
    assert said in str(refused.value)


TRAINED = 'model = "net"\nbatch_size = 32\nepochs = 3\nsamples_per_epoch = 320\n'


@pytest.mark.parametrize(
    ("limits", "demand"),
    [
        ("", Demand.gang(1)),
        ("scale_factor = 4", Demand.gang(4)),
        ("min_gpus = 2", Demand.gang(2)),
        ("max_gpus = 4", Demand(1, 4, tuned=1)),
        ("min_gpus = 2\nmax_gpus = 8", Demand(2, 8, tuned=2)),
        ("scale_factor = 4\nmin_gpus = 1\nmax_gpus = 8", Demand(1, 8, tuned=4)),
        ("scale_factor = 4\nmin_gpus = 1", Demand(1, 4, tuned=4)),
    ],
)
def test_limits_on_gpus_make_a_job_elastic(limits: str, demand: Demand) -> None:
    job = JobFile.model_validate(tomllib.loads(TRAINED + limits))
    assert job.spec(0, 0.0, {}).demand == demand


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("scale_factor = 2\nmin_gpus = 4", "min_gpus: 4 is above its 2 GPUs"),
        ("scale_factor = 8\nmax_gpus = 4", "max_gpus: 4 is below its 8 GPUs"),
        ("max_gpus = 0", "max_gpus: 0 is refused"),
        ('max_gpus = 2\nkind = "opaque"', "model: is of adaptive jobs only"),
    ],
)
def test_limits_on_gpus_that_contradict_are_refused(tmp_path: Path, limits: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        read(tmp_path / "job.toml", TRAINED + limits)
    assert said in str(refused.value)


def test_an_image_without_a_kind_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kind: is missing; give checkpointing"):
        read(tmp_path / "job.toml", 'image = "a"')


def test_a_file_of_jobs_is_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(f"[[jobs]]\n{OPAQUE}arrival_seconds = 90\n[[jobs]]\n{OPAQUE}")
    workload = Source(trace=path, format="jobs").open()
    assert [(spec.job_id, spec.arrival_seconds) for spec in workload.specs] == [(1, 0.0), (0, 90.0)]
    path.write_text(f"[[jobs]]\n{OPAQUE}\n[[jobs]]\n{OPAQUE}budget = -1")
    with pytest.raises(InputError, match=r"jobs\.toml: jobs\[1\]\.budget: -1 is refused"):
        Source(trace=path, format="jobs").open()
    path.write_text(f"[[jobs]]\n{OPAQUE.replace('sweep', 'a b')}")
    with pytest.raises(InputError, match=r"jobs\.toml: jobs\[0\]: name: 'a b' is not a name"):
        Source(trace=path, format="jobs").open()
    path.write_text('[[jobs]]\nmodel = "x"\nbatch_size = 32\nepochs = 2')
    with pytest.raises(InputError, match="no throughputs of 'x'; give a table that has its"):
        Source(trace=path, format="jobs").open()
    path.write_text("")
    with pytest.raises(InputError, match=r"jobs\.toml: jobs: is missing"):
        Source(trace=path, format="jobs").open()


@pytest.mark.parametrize(("model", "name"), [(JobFile, "job"), (JobsFile, "jobs")])
def test_the_published_schema_is_that_of_the_file(model: type[JobFile], name: str) -> None:
    """`model_json_schema` of the model, as JSON with an indent of 2, is the file's content."""
    published = (SCHEMAS / f"{name}.json").read_text()
    assert json.loads(published) == json.loads(json.dumps(model.model_json_schema()))


def test_forms_and_commands_know_the_kind_bounds_and_default_of_each_field() -> None:
    fields = {field.name: field for field in list_job_fields()}
    assert all(field.help.endswith(".") for field in fields.values())
    gpus, mode, retries = fields["scale_factor"], fields["mode"], fields["retries"]
    assert (gpus.option, gpus.title, gpus.kind) == ("gpus", "GPUs", FieldKind.INTEGER)
    assert (gpus.default, gpus.least) == (None, 1)
    assert (mode.kind, mode.choices) == (
        FieldKind.CHOICE,
        ("static", "accordion", "gns", "goodput"),
    )
    assert (retries.kind, retries.default, retries.least) == (FieldKind.INTEGER, None, 0)
    assert fields["environment"].kind is FieldKind.VARIABLES
    assert fields["after"].kind is FieldKind.WORDS
    assert fields["consolidate"].kind is FieldKind.FLAG
    assert not fields.keys() & {"regimes", "seconds"}
