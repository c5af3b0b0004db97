"""The package, installed in an environment of its own, runs outside the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("shockwave", "flows", "warehouse", "tasks", "containers", "solver", "predictor")


def test_the_installed_package_simulates_outside_the_checkout(tmp_path: Path) -> None:
    source, environment = tmp_path / "source", tmp_path / "env"
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    # Dependencies come from this environment; the editable checkout in it does not, since its
    # own .pth file is not read there.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--no-index", "--quiet", source], check=True)
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    asked = ["simulate", "--gpus", "4", "--jobs", "3", "--policy", "shockwave"]
    done = subprocess.run(
        [environment / "bin" / "shockwave", *asked],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "shockwave" in done.stdout
    where = [python, "-c", "import flows; print(flows.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(environment)
