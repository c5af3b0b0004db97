"""Policies of other packages: the tutorial runs; every way in which a policy can fail."""

import importlib
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect.client.orchestration import SyncPrefectClient

import shockwave
from flows.runs.resuming import resume
from flows.runs.settings import ClusterSize
from flows.runs.simulation import simulate
from flows.runs.start import make_policy_of, make_simulation_start
from predictor.errors import InputError, PluginError
from predictor.plugins import Kind, plugins
from shockwave.testing import check_policy
from solver.policies import POLICIES, policy_names
from tests.documents import blocks, check_commands, check_python
from tests.flows.conftest import Command, assert_refused
from warehouse.store.reader import Reader

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "examples" / "own-policy"
PAGE = ROOT / "docs" / "own-policy.md"
MODULE = "smallest_first.py"
PACKAGE = "shockwave-smallest-first 0.1.0"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template, installed by pip into a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(TEMPLATE, folder / "source")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--no-index"),
            *("--target", folder / "site", folder / "source"),
        ],
        check=True,
        cwd=folder,
    )
    return folder / "site"


@dataclass(frozen=True)
class Site:
    """A folder of packages that this process sees."""

    folder: Path

    def renew(self) -> None:
        """Forget imports from it, as in a new process."""
        importlib.invalidate_caches()
        sys.modules.pop("smallest_first", None)
        plugins.cache_clear()
        make_policy_of.cache_clear()

    def write(self, text: str) -> None:
        """Replace the policy's code."""
        (self.folder / MODULE).write_text(text)
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)
        self.renew()

    def change(self, old: str, new: str) -> None:
        """Replace a part of the policy's code."""
        text = (self.folder / MODULE).read_text()
        assert old in text
        self.write(text.replace(old, new))


@pytest.fixture
def site(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A copy of the installed template, beside all else that is installed."""
    site = Site(shutil.copytree(installed, tmp_path / "site"))
    monkeypatch.syspath_prepend(site.folder)
    site.renew()
    yield site
    monkeypatch.undo()
    site.renew()


def own(warehouse: Path, rounds: int | None = None) -> str:
    """A run of the template's policy."""
    source = shockwave.Source(jobs=3, seed=1)
    settings = shockwave.Settings(round_seconds=900.0)
    start = make_simulation_start(source, ClusterSize(4), "smallest-first", settings, warehouse)
    return simulate(start, warehouse, rounds=rounds)


def test_the_template_is_what_the_tutorial_shows_and_short() -> None:
    code, test = blocks(PAGE, "python")
    assert code == (TEMPLATE / MODULE).read_text()
    assert test == (TEMPLATE / "test_smallest_first.py").read_text()
    assert blocks(PAGE, "toml") == [(TEMPLATE / "pyproject.toml").read_text()]
    assert len(code.splitlines()) <= 25


def test_the_tutorial_runs_as_it_stands(
    site: Site,
    client: SyncPrefectClient,
    here: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.chdir(ROOT)
    assert check_commands(PAGE, here) == 6
    assert check_python(PAGE)


def test_it_runs_by_name_in_a_process_of_its_own(installed: Path, tmp_path: Path) -> None:
    path = os.pathsep.join([str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from flows.cli.main import main; main()", "simulate"),
            *("--gpus", "4", "--jobs", "2", "--round-seconds", "900"),
            *("--policy", "smallest-first", "--warehouse", tmp_path / "w"),
        ],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "smallest-first-" in done.stdout


def test_the_templates_test_passes(site: Site, tmp_path: Path) -> None:
    tests = runpy.run_path(str(TEMPLATE / "test_smallest_first.py"))
    tests["test_it_is_a_policy"]()
    tests["test_small_gangs_wait_less"](tmp_path / "w")


def test_it_is_listed_with_its_package(site: Site, here: Command) -> None:
    rows = {row["policy"]: row for row in here("policy", "list", "--json").rows}
    assert rows.keys() == {*POLICIES, "smallest-first"}
    assert rows["smallest-first"]["package"] == PACKAGE
    assert rows["smallest-first"]["parameters"] == {"patience": 7_200.0}
    assert rows["fifo"]["package"] == ""


BROKEN = {
    "an import": ("from dataclasses", "import nosuch\nfrom dataclasses", "'nosuch'"),
    "an exit": ("from dataclasses", "raise SystemExit(3)\nfrom dataclasses", "SystemExit: 3"),
    "no class": ("class SmallestFirst", "class LargestFirst", "SmallestFirst"),
    "not frozen": ("(frozen=True)", "", "is not a frozen dataclass"),
    "no policy": ("(Policy)", "", "has no source (str); a policy inherits shockwave.Policy"),
    "another name": ('"smallest-first"', '"fifo"', "calls itself 'fifo'"),
    "an exception": ("return waited", "1 / 0; return waited", "ZeroDivisionError: division by"),
    "no plan": ("return run_list", "return None and run_list", "it is a NoneType, no Plan"),
}
"""Changes to the template, and their errors."""


@pytest.mark.parametrize("fault", BROKEN)
def test_a_failure_is_one_line_that_names_it(
    fault: str, site: Site, here: Command, tmp_path: Path
) -> None:
    old, new, said = BROKEN[fault]
    site.change(old, new)
    done = here(
        *("simulate", "--gpus", 4, "--jobs", 1, "--policy", "smallest-first"),
        *("--warehouse", tmp_path / "w"),
    )
    assert_refused(done, f"error: policy 'smallest-first' of {PACKAGE}: ", said)
    if fault in ("an import", "an exit", "an exception"):
        assert f"({MODULE}:" in done.err
    assert here("policy", "list").code == 0


def plans(body: str) -> str:
    """The code of a policy with this plan of `placement` for the jobs of `situation`."""
    code = (TEMPLATE / MODULE).read_text()
    return code.replace(
        "        return run_list",
        "        from dataclasses import replace\n\n"
        f"        def changed(plan):\n            {body}\n\n"
        "        return changed(run_list",
    ).replace("key=rank))", "key=rank)))")


UNFIT = {
    "return replace(plan, placement={99: (0,)})": "99, which is not a job",
    "return replace(plan, placement={j.job_id: (0,) * j.gang for j in situation.jobs})": "not",
    "return replace(plan, placement={j.job_id: (0,) for j in situation.jobs})": "GPU",
    "return replace(plan, placement={j.job_id: [0] for j in situation.jobs})": "not a tuple",
    "return replace(plan, placement=[0])": "no mapping",
    "return replace(plan, memory=3)": "its memory is a int, no text",
    "return replace(plan, report=None)": "no SolveReport",
}
"""Changes to a valid plan, and their errors."""


@pytest.mark.parametrize("body", UNFIT)
def test_a_plan_that_cannot_be_carried_out_is_refused(
    body: str, site: Site, tmp_path: Path
) -> None:
    site.write(plans(body))
    with pytest.raises(PluginError, match="made a plan that cannot be carried out: ") as refused:
        own(tmp_path / "w")
    assert UNFIT[body] in refused.value.problem


FORGETFUL = """
import itertools
COUNT = itertools.count()
"""


def test_the_kit_finds_what_is_no_policy(site: Site) -> None:
    site.write(FORGETFUL + plans("return plan if next(COUNT) % 3 else replace(plan, memory='1')"))
    with pytest.raises(AssertionError, match="the same situation gives another plan"):
        check_policy("smallest-first")
    site.write(plans("return replace(plan, placement={})"))
    with pytest.raises(AssertionError, match=r"job \d waits, and 8 GPUs idle"):
        check_policy("smallest-first")
    lazy = plans("return replace(plan, placement={})")
    site.write(lazy.replace("work_conserving = True", "work_conserving = False"))
    with pytest.raises(AssertionError, match="some jobs never end"):
        check_policy("smallest-first")


@pytest.mark.parametrize("name", ["shockwave", "themis"])
def test_the_kit_passes_on_ours(name: str) -> None:
    check_policy(name)


def test_replay_with_other_code_says_so(site: Site, here: Command, tmp_path: Path) -> None:
    run = own(tmp_path / "w")
    begun = own(tmp_path / "w", rounds=2)
    package = Reader(tmp_path / "w").packages(run)[-1]
    assert package.name == "shockwave-smallest-first"
    assert package.version.startswith("0.1.0 sha256:")
    done = here("run", "replay", run, "--warehouse", tmp_path / "w")
    assert done.out.endswith("all identical byte for byte\n")
    assert done.out.count("\n") == 1
    site.change("small gangs first, after", "the same, put otherwise: small gangs first, after")
    done = here("run", "replay", run, "--warehouse", tmp_path / "w")
    remark, verdict = done.out.splitlines()
    assert remark.startswith(f"{run}: recorded with {package.name} {package.version}, and here is")
    assert verdict.endswith("all identical byte for byte")
    done = here("run", "replay", run, "--warehouse", tmp_path / "w", "--json")
    assert len(done.rows[-1]["remarks"]) == 1
    with pytest.raises(InputError, match="install the versions that it began with"):
        resume(begun, tmp_path / "w")
    forked = ("run", "whatif", run, "--round", 0, "--warehouse", tmp_path / "w")
    assert here(*forked).err == f"{remark}\n"
    assert here(*forked, "--policy", "fifo").err == ""
    site.change("the same, put otherwise: small gangs first, after", "small gangs first, after")
    assert here(*forked).err == ""


def test_a_policy_that_fails_while_played_forward_is_named(
    site: Site, here: Command, tmp_path: Path
) -> None:
    far = "if situation.clock_seconds > 1_000:\n            raise ValueError('too far')\n"
    site.change("        def rank(", f"        {far}\n        def rank(")
    run = own(tmp_path / "w", rounds=2)
    done = here("why", 0, "--run", run, "--round", 0, "--warehouse", tmp_path / "w")
    assert_refused(done, f"error: policy 'smallest-first' of {PACKAGE}: cannot plan")


def test_names_are_ours_first_and_never_ambiguous(site: Site, tmp_path: Path) -> None:
    (info,) = site.folder.glob("*.dist-info")
    other = shutil.copytree(info, site.folder / "another-1.dist-info")
    metadata = other / "METADATA"
    metadata.write_text(metadata.read_text().replace("shockwave-smallest-first", "another"))
    entries = other / "entry_points.txt"
    entries.write_text(entries.read_text() + "fifo = smallest_first:SmallestFirst\n")
    site.renew()
    with pytest.raises(InputError, match="is brought by another and by shockwave-smallest-first"):
        own(tmp_path / "w")
    assert set(plugins(Kind.POLICY)) == {"fifo", "smallest-first"}
    assert policy_names() == [*POLICIES, "smallest-first"]
    check_policy("fifo")
