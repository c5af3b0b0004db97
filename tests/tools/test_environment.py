"""Setup: `tools/environment.py` completes an environment or says in a line why it cannot."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "environment.py"
LOCK = ROOT / "constraints.txt"

BACKEND = """
from zipfile import ZipFile

def build_editable(folder, config_settings=None, metadata_directory=None):
    return wheel(folder, "project", "Requires-Dist: part")

def wheel(folder, name, *lines):
    file, info = f"{name}-1-py3-none-any.whl", f"{name}-1.dist-info"
    with ZipFile(f"{folder}/{file}", "w") as archive:
        archive.writestr(f"{name}.py", "")
        metadata = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *lines]
        archive.writestr(f"{info}/METADATA", "\\n".join(metadata))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        archive.writestr(f"{info}/RECORD", f"{name}.py,,\\n{info}/METADATA,,\\n{info}/WHEEL,,\\n")
    return file
"""
"""Builds the project, and the package that it needs, without an index."""


@pytest.fixture(scope="module")
def set_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that is set up, not to be changed: making an environment takes seconds."""
    folder = made(tmp_path_factory.mktemp("project"))
    first = setup(folder, no_index="1", find_links="wheels")
    assert (first.returncode, first.stderr) == (0, "")
    output = first.stdout.splitlines()
    assert output[0] == "Setting up env for running; pip's output is in env/setup.log"
    assert output[-1].startswith("env is ready: ")
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return made(tmp_path)


def made(tmp_path: Path) -> Path:
    """A folder with a project that needs a package `part`, which lies in `wheels` beside uv."""
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "constraints.txt").write_text("part==1\n")
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (tmp_path / "wheels").mkdir()
    make = "import backend; backend.wheel('wheels', 'part')"
    subprocess.run([sys.executable, "-c", make], cwd=tmp_path, check=True)
    uv = distribution("uv")
    tag = (uv.read_text("WHEEL") or "").partition("Tag: ")[2].split()[0]
    with ZipFile(tmp_path / "wheels" / f"uv-{uv.version}-{tag}.whl", "w") as wheel:
        for file in uv.files or []:
            name = f"uv-{uv.version}.data/scripts/{file.name}" if ".." in file.parts else str(file)
            if file.name not in ("INSTALLER", "REQUESTED"):
                wheel.write(file.locate(), name)
    return tmp_path


def with_pip_alone(set_up: Path, project: Path) -> None:
    """Give a project an environment in which nothing is set up."""
    theirs = shutil.ignore_patterns("part*", "project*", "uv*", "setup*.log")
    shutil.copytree(set_up / "env", project / "env", symlinks=True, ignore=theirs)


def setup(project: Path, **pip: str) -> subprocess.CompletedProcess[str]:
    """Set up `env` in a project's folder, with these settings of pip and none of the machine's."""
    ours = {key: os.environ[key] for key in os.environ if not key.startswith(("PIP_", "UV_"))}
    settings = {f"PIP_{key.upper()}": value for key, value in pip.items()}
    return subprocess.run(
        [sys.executable, SCRIPT, "env"],
        cwd=project,
        env={**ours, **settings, "PIP_CONFIG_FILE": os.devnull, "TORCH_INDEX": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_what_is_half_installed_is_installed_anew(set_up: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(set_up, project, symlinks=True)
    (packages,) = project.glob("env/lib/python3*/site-packages")
    (packages / "part.py").unlink()
    (
        packages / "part-1.dist-info" / "RECORD"
    ).unlink()  # as if pip had been killed before writing it
    (packages / "part-1.dist-info" / "INSTALLER").unlink()
    again = setup(project, no_index="1", find_links="wheels")
    assert again.returncode == 0
    assert "part-1.dist-info was left half installed: installing it anew" in again.stdout
    assert (packages / "part.py").is_file()


def test_a_file_with_another_sum_than_its_lock_has_is_not_installed(
    project: Path, set_up: Path
) -> None:
    with_pip_alone(set_up, project)
    lock = project / "constraints.txt"
    lock.write_text(f"part==1 --hash=sha256:{'0' * 64}\n")
    ran = setup(project, no_index="1", find_links="wheels")
    assert ran.returncode == 2
    assert "Hash mismatch for `part==1`" in ran.stderr
    assert not list(project.glob("env/lib/python3*/site-packages/part*"))


def test_every_requirement_is_locked_with_the_sums_of_its_files() -> None:
    lock = re.sub(r" \\\n *", " ", LOCK.read_text())
    lines = [line.split(" --hash=sha256:") for line in lock.splitlines() if line[0] != "#"]
    assert all(len(sums) > 0 and all(len(sha) == 64 for sha in sums) for _, *sums in lines)
    locked = {name.partition("==")[0] for name, *_ in lines}
    project = tomllib.loads((LOCK.parent / "pyproject.toml").read_text())
    wanted = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(part for extra in project["project"]["optional-dependencies"].values() for part in extra),
    ]
    names = {re.split(r"[\[<>=,]", part)[0] for part in wanted}
    assert names - {"shockwave"} <= locked


def test_without_a_network_one_line_says_so_and_what_to_do(project: Path, set_up: Path) -> None:
    with_pip_alone(set_up, project)
    ran = setup(project, index_url="http://127.0.0.1:9/simple", retries="1")
    assert ran.returncode == 2
    output = ran.stderr.splitlines()
    assert output[0] == (
        "error: a package index cannot be reached; connect, or name another one in PIP_INDEX_URL"
    )
    assert output[-1] == "Once that is mended, make goes on from here."
    assert setup(project, no_index="1", find_links="wheels").returncode == 0


def test_a_folder_that_cannot_be_made_is_refused(project: Path) -> None:
    (project / "env").write_text("")
    ran = setup(project, no_index="1")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: env cannot be made; that takes Python's venv module")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("VENV=a b", "VENV is 'a b'; name one folder, without spaces"),
        ("VENV=", "VENV is ''; name one folder, without spaces"),
        ("PYTHON=no-such-python", "Python 3.11 or newer is needed, and no-such-python is not"),
        ("PYTHON=true", "Python 3.11 or newer is needed, and true is not"),
    ],
)
def test_make_says_what_it_needs(tmp_path: Path, setting: str, said: str) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    kept = sorted(tmp_path.iterdir())
    done = subprocess.run(
        ["make", "--no-print-directory", "run", setting],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[0]
    assert sorted(tmp_path.iterdir()) == kept
