"""The output of each command on terminals of two widths, stored as text in `screens/`.

    STORE=1 python -m pytest tests/flows/test_screens.py

writes them anew. Widths at which a command prints the same share a part of its file. All run in
this process, on a terminal that is none; `test_terminal.py` has some on a real one.
"""

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len

from flows.cli import campaign, simulate
from flows.cli.commands import COMMANDS
from flows.cli.output import print_log, print_rows
from flows.runs.profiling import Combination, Measured
from predictor.allocation import Demand
from predictor.job import Mode
from tasks.commands import CommandKind
from tests.flows.conftest import enter
from tests.flows.screens_of import Shown, still, uncoloured
from tests.flows.served import SECRET, served
from tests.flows.test_scheduler import JOB, go
from tests.flows.test_terminal import NUMBERS, UNBROKEN, WIDTHS
from warehouse.analytics.paired import job_by_job
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Tokens
from warehouse.store.campaigns import write_cells
from warehouse.store.files import CellRow, CellStatus

SCREENS = Path(__file__).parent / "screens"
SMALL = "--gpus 4 --jobs 3 --round-seconds 1800"
RUN, OTHER = "{shockwave}", "{fifo}"

CAMPAIGN = "screens-123456"
HASHES = ("sql", "SELECT last_hash FROM runs ORDER BY policy DESC", "--json")

CLUSTER = """storage = "/dev/null/jobs"
user = "1000:1000"

[[nodes]]
name = "node-1"
endpoint = "unix:///nowhere"
gpu_type = "v100"
image = "trainer"
gpus = [0, 1]
"""
"""A cluster that does not answer."""

LINES = {
    "resume": f"resume {OTHER}",
    "workload generate": "workload generate generated --jobs 3",
    "run list": "run list && run list --sort jct_p99_s && run list --by-policy --sort jct_p99_s",
    "run show": f"run show {RUN}",
    "run diff": f"run diff {RUN} {OTHER}",
    "campaign show": f"campaign show && campaign show {CAMPAIGN} --of-jobs 'scale_factor = 1'",
    "why": f"why 1 --run {RUN}",
    "sql": f"sql --recipe worst-jobs --run {RUN}",
    "views": "views",
    "run name": f"run name {RUN} Baseline",
    "run tag": f"run tag {RUN} one two three",
    "run note": f'run note {RUN} "read me before anything else, and then the rest of it all"',
    "run rm": f"run export {OTHER} new && run rm {OTHER} --yes && run import new",
    "run export": f"run export {RUN} new",
    "run import": f"run export {RUN} new && run import new --warehouse other",
    "run whatif": f"run whatif {RUN} --round 1 --gpus 8",
    "run replay": f"run replay {RUN}",
    "run audit": f"run audit {RUN}",
    "policy list": "policy list",
    "cluster check": "cluster check cluster.toml",
    "logout": "logout",
    "status": "status --warehouse service",
    "submit": "submit --model conv-small --batch-size 32 --epochs 3 --key a --warehouse service",
    "job cancel": "job cancel second --key b --warehouse service",
    "job hold": "job hold 1 --key c --warehouse service",
    "job release": "job release 1 --key d --warehouse service",
    "job requeue": "job requeue 1 --key e --warehouse service",
    "job budget": "job budget 1 2 --key f --warehouse service",
    "node cordon": "node cordon 1 --key i --warehouse service",
    "node drain": "node drain 1 --key g --warehouse service",
    "node uncordon": "node uncordon 1 --key h --warehouse service",
    "node add": "node add --gpus 4 --key j --warehouse service",
    "node remove": "node remove 1 --key k --warehouse service",
    "node maintain": "node maintain 2 --hours 1 --start 2999-01-01 --key l --warehouse service",
    "node reserve": "node reserve 2 --hours 1 --tenant a --key m --warehouse service",
    "node list": "node list --warehouse service",
    "queue": "queue --warehouse service",
    "job list": "job list --warehouse service",
    "service forecast": "service forecast --warehouse service --cancel first",
    "service events": "service events --warehouse service",
    "down": "down --warehouse service",
    "tenant list": "tenant list --warehouse service",
    "token list": "token list --warehouse service",
}
"""A line of each command."""

LEFT_OUT = re.compile(r"^\(\d+ columns? left out", re.MULTILINE)
"""How many columns do not fit a terminal."""

CHANGING = (
    *("views", "run name", "run tag", "run note", "run rm", "submit"),
    *("job cancel", "job hold", "job release", "job requeue", "job budget"),
    *("node cordon", "node drain", "node uncordon", "node add", "node remove"),
    *("node maintain", "node reserve"),
)
"""Commands that change the output of others; they run once, before all others."""

ELSEWHERE = {
    "job wait": "prints as job list does",
    "whoami": "prints the user of this machine; test_jobs.py has it",
    "node reopen": "prints as node maintain does",
    "node windows": "needs a later round; test_service_api.py has it",
    "node image": "needs Docker hosts; test_live.py has it",
    "cluster pull": "needs Docker hosts; test_grants.py has it",
    "shell": "needs Docker hosts; test_shell.py has it",
    "slurm advise": "needs a Slurm; test_queue_advice.py has it",
    "slurm check": "needs a Slurm; test_slurm_hand_over.py has it",
    "slurm release-all": "needs a Slurm; test_slurm_hand_over.py has it",
    "hindsight": "has tests of its own, with logs",
    "workload show": "has a test of its own, with a log",
    "workload fetch": "has a test of its own",
    "login": "has a test of its own, with a server",
    "report": "prints two lines",
    "tenant set": "prints a line",
    "deployments list": "has a test of its own, with a server",
    **{
        f"deployments {verb}": "prints a line"
        for verb in ("schedule", "pause", "resume", "unschedule")
    },
    "token add": "prints a token, which is another each time",
    "token rm": "prints a line",
    "up": "prints lines on stderr, which are the same on any terminal",
    "simulate": "prints the summary that `cluster run` prints",
}
"""Commands that are not run here, and why."""


@dataclass(frozen=True)
class Kept:
    """A folder with warehouses: two runs and a campaign of them in one, a service in another."""

    folder: Path
    runs: dict[str, str]
    answers: dict[tuple[str, int | None, bool], str] = field(default_factory=dict)

    def shown(self, line: str, width: int | None, *, colour: bool = False) -> str:
        """The cached output of a command."""
        if (line, width, colour) not in self.answers:
            self.answers[line, width, colour] = self.printed(line, width, colour=colour)
        return self.answers[line, width, colour]

    def printed(self, line: str, width: int | None, *, colour: bool = False) -> str:
        """The same, asked anew."""
        lines = [shlex.split(part) for part in line.format(**self.runs).split(" && ")]

        def call() -> None:
            for name in ("generated", "new", "other"):
                shutil.rmtree(name, ignore_errors=True)
            Path("new").unlink(missing_ok=True)
            for words in lines:
                enter(*words)

        return Shown(self.folder).at(width, call, colour=colour)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp("screens")
    shown = Shown(folder)
    for policy in ("shockwave", "fifo"):
        shown.at(None, partial(enter, *f"simulate {SMALL} --policy {policy}".split()))
    listed = shown.at(None, partial(enter, "run", "list", "--json"))
    names = {
        name: re.findall(rf'"run": "({name}-[^"]*)"', listed)[0] for name in ("shockwave", "fifo")
    }
    hashes = re.findall(r'"last_hash": "([^"]*)"', shown.at(None, partial(enter, *HASHES)))
    rows = [
        CellRow(
            *(CAMPAIGN, f"{policy}-{seed}", names[policy], policy, "small", "gpus4", "usual"),
            *(seed, CellStatus.FINISHED, hashes[place], 1.5, f"{policy}{seed}", ""),
        )
        for place, policy in enumerate(names)
        for seed in (1, 2, 3)
    ]
    write_cells(folder / "w", CAMPAIGN, rows)
    with still(), Tokens(folder / "service") as tokens, Inbox(folder / "service") as inbox:
        tokens.add("ann", Role.TENANT, "research")
        inbox.submit(replace(JOB, name="first"), by="ann")
        inbox.submit(replace(JOB, name="second", mode=Mode.STATIC), by="ann")
        inbox.submit(replace(JOB, demand=Demand.gang(4), tenant="research"))
        go(folder / "service", 3)
        inbox.command(CommandKind.DRAIN, 1)
        go(folder / "service", 1)
    (folder / "cluster.toml").write_text(CLUSTER)
    made = Kept(folder, names)
    for name in CHANGING:
        made.printed(LINES[name], None)
    return made


def stored(name: str, texts: dict[int, str]) -> None:
    """Compare output with the stored screen."""
    parts = {text: [w for w in texts if texts[w] == text] for text in texts.values()}
    whole = "".join(
        f"== {' '.join(map(str, widths))} columns\n{text}" for text, widths in parts.items()
    )
    whole = re.sub(r"-[0-9a-f]{6}-(?=\d)", "-000000-", whole)  # hashes change with any input
    file = SCREENS / f"{name.replace(' ', '-')}.txt"
    if os.environ.get("STORE"):
        SCREENS.mkdir(exist_ok=True)
        file.write_text(whole, encoding="utf-8")
    assert whole == file.read_text(encoding="utf-8"), "if this is better: STORE=1 stores it"


def assert_stored(name: str, shown: Callable[..., str]) -> None:
    """Compare the output of a command on terminals with the stored screen, and with a file's.

    With colour it is the same: of summaries and of a list, which print by the same means; whoever
    stores it anew has that looked at for each width.
    """
    numbers = {*NUMBERS.findall(shown(None))}
    texts = {width: shown(width) for width in WIDTHS}
    assert texts[80], "it prints nothing"
    for width, text in texts.items():
        assert_readable(text, width, numbers)
    for width in WIDTHS if os.environ.get("STORE") else (80,) if name in COLOURED else ():
        coloured = shown(width, colour=True)
        assert uncoloured(coloured) == texts[width], "colour changes the layout"
    stored(name, texts)


def assert_readable(text: str, width: int, numbers: set[str]) -> None:
    """No line is wider, no number broken, no column of single letters."""
    lines = text.splitlines()
    wide = [line for line in lines if cell_len(line) > width]
    assert all(UNBROKEN.search(line) for line in wide), text
    said = LEFT_OUT.sub("", text)
    assert {*NUMBERS.findall(said)} <= numbers, text
    narrow = [len(line.strip(" │╭╰╮╯─")) == 1 for line in lines]
    assert not any(a and b for a, b in pairwise(narrow)), text


def test_every_command_is_here() -> None:
    assert sorted([*LINES, *SUMMARIES, *ELSEWHERE]) == sorted(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_a_command_prints_what_is_stored(name: str, kept: Kept) -> None:
    assert_stored(name, partial(kept.shown, LINES[name]))


MEASURED = (
    Measured(Combination("ResNet-18", 128, 2, 50_000), 61.8123, 0.012, 3.41),
    Measured(Combination("Transformer", 16, 4, 10_000), problem="the container ended with code 1"),
)

SUMMARIES: dict[str, Callable[[Kept], object]] = {
    "compare": lambda kept: simulate.print_summary(
        Path("w"),
        [*kept.runs.values()],
        0.0,
        False,
        job_by_job(Path("w"), kept.runs["shockwave"], [kept.runs["fifo"]]),
        every_figure=False,
    ),
    "campaign run": lambda kept: campaign._report(Path("w"), CAMPAIGN, False),
    "cluster run": lambda kept: simulate.print_summary(Path("w"), [kept.runs["fifo"]], 0.0, False),
    "cluster profile": lambda kept: print_rows(
        [{"gpu_type": "v100", **measured.row} for measured in MEASURED], as_json=False
    ),
    "job logs": lambda kept: print_log(
        b"epoch 1 of 3: loss 2.304, 61.8 steps/s\nsaved at 120.0 s\n"
    ),
}
"""Printers of the results of commands that take a server, containers or minutes."""

COLOURED = {*SUMMARIES, "run list"}
"""What is shown with colour each time."""


@pytest.mark.parametrize("name", SUMMARIES)
@pytest.mark.slow
def test_a_summary_prints_what_is_stored(name: str, kept: Kept) -> None:
    call = partial(SUMMARIES[name], kept)
    assert_stored(name, partial(Shown(kept.folder).at, call=call))


@pytest.mark.process
def test_login_prints_what_is_stored(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    with served(kept.folder / "service") as url:

        def call() -> None:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(sys, "stdin", io.StringIO(SECRET))
                enter("login", url)

        def shown(width: int | None, *, colour: bool = False) -> str:
            text = Shown(kept.folder).at(width, call, colour=colour)
            return text.replace(url, "http://127.0.0.1:42000")

        assert_stored("login", shown)


@pytest.mark.slow
def test_a_queue_is_a_line_a_job(kept: Kept) -> None:
    for command in ("queue", "job list"):
        for width in (80, 120):
            lines = kept.shown(f"{command} --warehouse service", width).splitlines()
            assert sum("second" in line for line in lines) == 1
            assert len(lines) < 20, lines


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_a_help_is_readable(name: str, tmp_path: Path) -> None:
    at = partial(Shown(tmp_path).at, call=partial(enter, *name.split(), "--help"))
    numbers = {*NUMBERS.findall(at(200))}
    for width in WIDTHS:
        assert f"shockwave {name}".strip() in at(width)
        assert_readable(at(width), width, numbers)
