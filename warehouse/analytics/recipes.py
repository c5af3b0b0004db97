"""The cookbook: questions about a warehouse, each with its query.

A recipe is a file `cookbook/NN-name.sql`: the question, its audience, a mark if the recipe concerns
a single run or every one of several identical runs, and the query. The query reads the run from the
variable `run` and, if it concerns a single job, the job from the variable `job`.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from predictor.errors import InputError, meant

_HEAD = re.compile(
    r"-- (?P<question>.*\?.*)\n-- asked by: (?P<asked_by>\w+)\n(?:-- of: (?P<of>one|every) run\n)?"
)


@dataclass(frozen=True, slots=True)
class QueryRecipe:
    """A question and its query.

    Attributes:
        asked_by: Audience: operators, researchers or tenants.
        of_every_run: Whether it concerns each of several identical runs.
    """

    name: str
    question: str
    asked_by: str
    of_one_run: bool
    of_every_run: bool
    of_one_job: bool
    sql: str


@cache
def recipes() -> tuple[QueryRecipe, ...]:
    """Return the recipes in the order of the cookbook."""
    paths = sorted((Path(__file__).parent / "cookbook").glob("*.sql"))
    return tuple(_read(path) for path in paths)


def recipe(name: str) -> QueryRecipe:
    """Return a recipe by name.

    Raises:
        InputError: There is no such recipe.
    """
    known = {recipe.name: recipe for recipe in recipes()}
    if name not in known:
        raise InputError("recipe", f"no {name!r}", meant(name, known))
    return known[name]


def _read(path: Path) -> QueryRecipe:
    text = path.read_text(encoding="utf-8")
    head = _HEAD.match(text)
    assert head is not None, f"{path.name} does not begin with a question and its audience"
    name = path.stem.split("-", 1)[1]
    return QueryRecipe(
        name=name,
        question=head["question"],
        asked_by=head["asked_by"],
        of_one_run=head["of"] == "one",
        of_every_run=head["of"] == "every",
        of_one_job="getvariable('job')" in text,
        sql=text,
    )
