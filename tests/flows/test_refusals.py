"""Refusals of commands: exit code 2, and a line with place, problem and remedy."""

import json
import sys
from io import StringIO
from pathlib import Path

import pytest

from flows.cli.commands import COMMANDS, WITHOUT_RECORDS
from flows.cli.errors import add_warehouse
from tests.flows.conftest import Command, Finished, assert_refused, command_named, tree
from warehouse.store.folder import place_of


def test_options_before_the_command_are_sent_behind_it(here: Command) -> None:
    ran = here("--warehouse", "w", "run", "list")
    assert_refused(ran, "options follow the command, as in shockwave COMMAND --warehouse;")


def test_remedies_name_the_warehouse_that_was_given(
    here: Command, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, remedy = f" --warehouse {finished.warehouse}", "list them with: shockwave run list"
    assert_refused(here("run", "show", "nope", *given.split()), f"{remedy}{given}")
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(finished.warehouse))
    assert_refused(here("run", "show", "nope"), remedy)


def test_remedies_know_which_commands_read_a_warehouse() -> None:
    reads = {name for name in COMMANDS for p in command_named(name).params if p.name == "warehouse"}
    assert {*COMMANDS} - reads == WITHOUT_RECORDS
    kept = Path("a b")
    assert add_warehouse("see shockwave run audit fifo-0f0f0f-1", kept) == (
        "see shockwave run audit fifo-0f0f0f-1 --warehouse 'a b'"
    )
    for same in (
        "see shockwave policy list",
        "shockwave resume x-1 --warehouse w",
        "shockwave is off",
    ):
        assert add_warehouse(same, kept) == same


def test_an_unknown_command_is_refused_with_similar_commands(here: Command) -> None:
    ran = here("simlate")
    assert_refused(ran, "Did you mean 'simulate'?")
    assert_refused(here("--bogus"), "No such option: --bogus")


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("simulate --polcy", "--policy"),
        ("simulate --num-gpus", "--gpus"),
        ("simulate --gpus_per_node", "--gpus-per-node"),
        ("simulate --rounds", "--round-seconds"),
        ("simulate --jbos", "--jobs"),
        ("simulate --output", None),
        ("compare --policy", "--policies"),
        ("why --runs", "--run"),
        ("report --output", "--out"),
        ("submit --batchsize", "--batch-size"),
    ],
)
def test_an_unknown_option_is_refused_with_the_option_that_is_meant(
    here: Command, command: str, meant: str | None
) -> None:
    *name, option = command.split()
    question = f"did you mean {meant}? " if meant else ""
    assert_refused(here(*name, option, "x"), f"No such option: {option}; {question}see shockwave")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--gpus 0", ["--gpus", "0 is not positive"]),
        ("--gpus 99999999999", ["--gpus", "99999999999 is out of range", "at most 1000000"]),
        ("--gpus 1 --jobs 20 --scale-factors 2=1", ["needs 2 GPUs", "the cluster has 1"]),
        ("--window 0", ["--window", "0 is out of range"]),
        ("--round-seconds -120", ["--round-seconds", "-120.0 is out of range"]),
        ("--round-seconds nan", ["--round-seconds", "nan is out of range"]),
        ("--restart-seconds -1", ["--restart-seconds", "-1.0 is out of range"]),
        ("--jobs 0", ["--jobs", "0 is out of range", "at least 1"]),
        ("--jobs 99999999999", ["--jobs", "99999999999 is out of range", "at most 1000000"]),
        ("--window 1001", ["--window", "1001 is out of range", "at most 1000"]),
        ("--seed -1", ["--seed", "-1 is out of range", "at least 0"]),
        ("--longest-seconds 3_600", ["--longest-seconds", "'3_600' is not a number"]),
        ("--seed 9223372036854775808", ["--seed", "out of range", "at most 9223372036854775807"]),
        ("--policy shokwave", ["--policy", "did you mean shockwave? choose from"]),
        ("--backend higs", ["--backend", "did you mean highs? choose from"]),
        ("--set latenes=1", ["--set latenes", "did you mean lateness? choose from"]),
        ("--backend abacus", ["--backend", "'abacus'", "auto, lagrangian, gurobi, highs"]),
        ("--trace some.trace", ["--profile", "missing", "format"]),
        ("--profile some.json", ["--profile", "belongs to a trace"]),
        ("--trace no.trace --profile no.json", ["no.json", "No such file"]),
    ],
)
def test_simulate_refuses_options(
    here: Command, tmp_path: Path, options: str, said: list[str]
) -> None:
    given = ["--gpus", "4", *options.split()]
    if "--trace" not in given:
        given = ["--jobs", "1", *given]
    assert_refused(here("simulate", *given, "--warehouse", tmp_path / "w", "--json"), *said)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["simulate", "--gpus", "4", "--warehouse", ""], "--warehouse"),
        (["simulate", "--gpus", "4", "--warehouse="], "--warehouse"),
        (["workload", "generate", "", "--jobs", "5"], "OUT"),
        (["workload", "generate", ".", "--trace", ""], "--trace"),
        (["run", "whatif", "a-run", "--round", "1", "--with", "job.toml", "--with", ""], "--with"),
    ],
)
def test_an_empty_path_is_refused(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(here(*command), f"{place}: is empty; give a file or folder")
    assert tree(tmp_path) == {}


def test_an_empty_variable_names_no_warehouse(
    here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", "")
    assert_refused(here("run", "list"), "var/warehouse: is not a warehouse")


@pytest.mark.parametrize("command", ["run list --limit", "sql --recipe x --job", "sql x --memory"])
def test_numbers_beyond_those_of_the_warehouse_are_refused(here: Command, command: str) -> None:
    ran = here(*command.split(), 10**20)
    assert_refused(ran, f"'{command.split()[-1]}': Input should be less than or equal to")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--jobs 0", ["--jobs", "0 is out of range", "at least 1"]),
        ("--jobs 1_0", ["--jobs: '1_0' is not a number; write it in digits from 0 to 9"]),
        ("--longest-seconds=1_0", ["--longest-seconds: '1_0' is not a number"]),
        ("--scale-factors 1=1_0", ["--scale-factors", "a weight that is not a number"]),
        ("--scale-factors 1_0=1", ["--scale-factors", "is not like 1=0.5,8=0.5"]),
        ("--contention-factor 2", ["--gpus", "missing"]),
        ("--contention-factor 0 --gpus 4", ["--contention-factor", "give more than 0"]),
        ("--longest-seconds 5", ["--longest-seconds", "5 is out of range"]),
        ("--format philly", ["--format", "belongs to a trace"]),
        (
            "--jobs 9 --gpus 3 --scale-factors 4=1",
            ["job 0: needs 4 GPUs, but the cluster has 3", "number out of --scale-factors 4=1"],
        ),
        ("--format table --trace {folder}/no.csv", ["--columns", "no column for the arrival"]),
        ("--format philly --trace {folder}/no.csv", ["no.csv", "No such file"]),
    ],
)
def test_generate_refuses_options(
    here: Command, tmp_path: Path, options: str, said: list[str]
) -> None:
    given = options.format(folder=tmp_path).split()
    assert_refused(here("workload", "generate", tmp_path / "out", *given), *said)
    assert tree(tmp_path) == {}


def test_a_login_checks_the_address_before_it_asks_for_a_token(
    here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_refused(here("login", "ftp://foo"), "url: 'ftp://foo' is not a URL")
    monkeypatch.setattr(sys, "stdin", StringIO())
    said = here("login", "http://127.0.0.1:4200").err
    assert "token: is missing; type one, or read it from a file: shockwave login URL <" in said


def test_generate_replaces_nothing_unasked(here: Command, tmp_path: Path) -> None:
    assert here("workload", "generate", tmp_path, "--jobs", 1).code == 0
    before = tree(tmp_path)
    assert_refused(
        here("workload", "generate", tmp_path, "--jobs", 2),
        "is there already",
        "or set --overwrite",
    )
    assert tree(tmp_path) == before
    assert here("workload", "generate", tmp_path, "--jobs", 2, "--overwrite").code == 0
    assert tree(tmp_path) != before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--policies fifo,lottery", ["'lottery'", "choose from shockwave, "]),
        ("--policies fifo,,srtf", ["--policies: 'fifo,,srtf' is not a list", "some of shockwave"]),
        ("--policies ,", ["--policies: ',' is not a list POLICY,POLICY,…; give some of"]),
        ("--gpus 0", ["--gpus", "0 is not positive"]),
        ("--jobs 0", ["--jobs", "0 is out of range", "at least 1"]),
        ("--gpus 99999999999", ["--gpus", "99999999999 is out of range"]),
        ("--set weight=1", ["--set", "weight: is a parameter of none of shockwave, fifo, srtf"]),
        ("--set lateness=-1", ["lateness"]),
        ("--history no-such-run", ["'no-such-run'", "not in the warehouse"]),
    ],
)
def test_compare_refuses_options_before_prefect_starts(
    here: Command, tmp_path: Path, options: str, said: list[str]
) -> None:
    given = ["--jobs", "1", *options.split()]
    assert_refused(here("compare", *given, "--warehouse", tmp_path / "w", "--json"), *said)
    assert tree(tmp_path) == {}


JOB = {
    "job_type": "LM (batch size 5)",
    "command": "command",
    "working_directory": ".",
    "steps_argument": "-n",
    "needs_data": "0",
    "total_steps": "20000",
    "scale_factor": "1",
    "mode": "static",
    "priority_weight": "1",
    "slo": "-1",
    "duration": "1000",
    "arrival": "0",
}


def changed(**fields: str) -> str:
    return "\t".join((JOB | fields).values())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (changed().replace("\t", ","), ["1 columns instead of 12", "format of a CSV table"]),
        (changed().rsplit("\t", 1)[0], ["11 columns instead of 12", "arrival"]),
        (changed(job_type="GPT (batch size 5)"), ["job_type", "unknown model 'GPT'", "LM"]),
        (changed(job_type="LM"), ["job_type", "'LM'"]),
        (changed(job_type="LM (batch size 7)"), ["batch size 7"]),
        (changed(scale_factor="8"), ["needs 8 GPUs", "the cluster has 4"]),
        (changed(scale_factor="0"), ["scale_factor", "0 is not positive"]),
        (changed(scale_factor="two"), ["scale_factor", "'two' is not a whole number"]),
        (changed(arrival="-1"), ["arrival", "-1"]),
        (changed(arrival="nan"), ["arrival", "nan"]),
        (changed(total_steps="0"), ["total_steps", "0 is not positive"]),
        (changed(total_steps="9" * 15), ["total_steps", "epochs are too large"]),
        (changed(total_steps="9" * 20), ["total_steps", "too large"]),
        (changed(mode="magic"), ["mode", "'magic'", "static, accordion, gns"]),
        (changed(priority_weight="0"), ["priority_weight", "not positive"]),
    ],
)
def test_simulate_refuses_a_trace_line(
    here: Command, tmp_path: Path, line: str, said: list[str]
) -> None:
    trace, profile = tmp_path / "bad.trace", tmp_path / "throughputs.json"
    trace.write_text(changed() + "\n" + line + "\n")
    rates = {f"('LM (batch size 5)', {gpus})": {"null": 10.5} for gpus in (1, 8)}
    profile.write_text(json.dumps({"v100": rates}))
    before = tree(tmp_path)
    ran = here(
        *("simulate", "--gpus", 4, "--trace", trace, "--profile", profile),
        *("--warehouse", tmp_path / "w", "--json"),
    )
    assert_refused(ran, "bad.trace", *said)
    assert tree(tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "run replay nothing-1 --warehouse {w}",
            ["run 'nothing-1'", "list them with: shockwave run list"],
        ),
        ("run replay ../x --warehouse {w}", ["run '../x'"]),
        ("run replay {run} --round 999 --warehouse {w}", ["--round", "no round 999"]),
        ("run replay {run} --round -1 --warehouse {w}", ["--round", "no round -1"]),
        ("run replay {run} --warehouse {folder}/no", ["not in the warehouse"]),
        ("sql SELEC --warehouse {w}", ["query", "Parser Error"]),
        ("sql SELECT+nope+FROM+runs --warehouse {w}", ["query", '"nope"']),
        ("sql FROM+nope --warehouse {w}", ["query", "nope", "run_summary"]),
        ("sql FROM+run_sumary --warehouse {w}", ["query", "did you mean run_summary? give one"]),
        ("sql SELECT+'x'::INT --warehouse {w}", ["query", "'x'"]),
        ("sql CREATE+TABLE+x(a+INT) --warehouse {w}", ["query"]),
        ("sql COPY+(SELECT+1)+TO+'{folder}/x.csv' --warehouse {w}", ["query"]),
        ("sql COPY+(SELECT+1)+TO+'{w}/records/x.parquet' --warehouse {w}", ["query"]),
        ("views --warehouse {folder}/file", ["file: is a file, not a folder; name a"]),
        ("campaign show {run} --warehouse {w}", ["it is a run; see it with: shockwave run show"]),
        ("why + --run {run} --warehouse {w}", ["job ' ': is not in run", "; name one of its jobs"]),
        ("views --warehouse {folder}", ["is not a warehouse"]),
        ("sql FROM+runs --warehouse {folder}/no", ["no", "is not a warehouse"]),
        ("simulate --gpus 4 --jobs 1 --warehouse {folder}/file/w", ["file", "cannot be written"]),
        ("run replay {run} --warehouse {folder}/file/w", ["not in the warehouse"]),
    ],
)
def test_what_is_not_there_is_named(
    here: Command, finished: Finished, tmp_path: Path, arguments: str, said: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    before = tree(tmp_path), tree(finished.warehouse)
    given = arguments.format(folder=tmp_path, w=finished.warehouse, run=finished.run).split()
    assert_refused(here(*(part.replace("+", " ") for part in given)), *said)
    assert (tree(tmp_path), tree(finished.warehouse)) == before


def test_what_a_file_holds_does_not_steer_the_terminal(here: Command, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text('at,"to\x1b[31mok\nn"\n')
    ran = here("simulate", "--gpus", 4, "--trace", table, "--format", "philly")
    assert_refused(ran, "the first line has at, to\\x1b[31mok")
    table.write_text('{"v100": {\n')
    ran = here("simulate", "--gpus", 4, "--trace", table, "--format", "philly")
    assert_refused(ran, "t.csv:1: its first line has none of the columns timestamp, ")


@pytest.mark.parametrize("file", ["header.parquet", "round=all.parquet"])
@pytest.mark.parametrize("command", ["run replay {run}", "resume {run}", "sql FROM+run_summary"])
def test_a_truncated_file_is_named(
    here: Command, finished: Finished, copied: Path, file: str, command: str
) -> None:
    damaged = place_of(copied, finished.run) / file
    damaged.write_bytes(damaged.read_bytes()[:300])
    before = tree(copied / "records")
    given = (part.replace("+", " ") for part in command.format(run=finished.run).split())
    assert_refused(here(*given, "--warehouse", copied, "--json"), str(damaged))
    assert tree(copied / "records") == before


def test_the_program_refuses_as_its_entry_point_does(program: Command, tmp_path: Path) -> None:
    arguments = ("simulate", "--gpus", 8, "--policy", "lottery", "--warehouse", tmp_path / "w")
    assert_refused(program(*arguments), "--policy")
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--gpus=x"],
        ["sql"],
        ["dance"],
        ["sql", "--no"],
        ["sql", "FROM runs", "--recipe", "worst-jobs"],
        ["sql", "FROM runs", "--job", "1"],
    ],
)
def test_wrong_usage_is_refused_and_names_the_help(here: Command, arguments: list[str]) -> None:
    assert_refused(here(*arguments), "shockwave", "see shockwave", "--help")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--history", ""), "'' is not a list RUN,RUN,…; name runs or leave it out"),
        (("--history", "a,"), "'a,' is not a list RUN,RUN,…; name runs or leave it out"),
        (
            ("--history", "a", "--forecasts", "oracle"),
            "has no effect on oracle forecasts; leave it out",
        ),
    ],
)
def test_a_history_that_can_teach_nothing_is_refused(
    here: Command, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    asked = ("simulate", "--gpus", 8, "--jobs", 4, "--warehouse", tmp_path / "w")
    ran = here(*asked, *arguments)
    assert_refused(ran, f"--history: {said}")
    assert tree(tmp_path) == {}
