"""The structure of the packages: no import cycles, unique class names, declared dependencies."""

import ast
import json
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import networkx as nx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGES = ("shockwave", "flows", "warehouse", "tasks", "containers", "solver", "predictor")
TRAINER = "containers.images.trainer"
"""A program of its own: imported in containers only, as `trainer`."""


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax tree of every module."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    return {
        ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
            file.read_text()
        )
        for file in files
    }


def imports(tree: ast.Module) -> Iterator[str]:
    """All that a module imports, lazily and for types only, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules() else str(node.module)


def test_no_module_imports_itself_in_a_circle() -> None:
    edges = [
        (module, name)
        for module, tree in modules().items()
        for name in imports(tree)
        if name in modules() and name != module
    ]
    cycles = nx.strongly_connected_components(nx.DiGraph(edges))
    assert [sorted(cycle) for cycle in cycles if len(cycle) > 1] == []


def test_each_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict[str, list[str]](list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_each_imported_library_is_a_declared_dependency() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = {
        canonicalize_name(Requirement(text).name)
        for text in [*PROJECT["dependencies"], *(r for name in extras for r in extras[name])]
    }
    distributions = packages_distributions()
    undeclared = {
        (module, top)
        for module, tree in modules().items()
        for top in {name.partition(".")[0] for name in imports(tree)}
        if top not in sys.stdlib_module_names and top not in (*PACKAGES, "trainer")
        if not declared & {canonicalize_name(name) for name in distributions.get(top, [])}
    }
    assert undeclared == set()


@pytest.mark.process
@pytest.mark.slow
def test_importing_changes_no_environment() -> None:
    program = """
import importlib, json, os, sys
before = {**os.environ}
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps({k: v for k, v in os.environ.items() if before.get(k) != v}))
"""
    own = [name for name in modules() if not name.startswith(TRAINER) and "__main__" not in name]
    done = subprocess.run(
        [sys.executable, "-c", program, *own], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {}
