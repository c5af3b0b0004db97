"""A work pool of type docker, tried on a Docker daemon of its own.

    uv pip install --target FOLDER --no-deps prefect-docker
    PYTHONPATH=FOLDER python -m harness.docker_pool

deploys `prefect.yaml`, and a worker runs an audit in a container. The image is empty: Python, the
packages and this checkout are mounted, so that no image need be pulled. Server, worker and
container share the daemon's network. Needs root and dockerd. Prints the seconds of each step.
"""

import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.dockerd import PLAIN, dockerd, mounts
from harness.waiting import wait_for

ROOT = Path(__file__).parents[1]
POOL = "shockwave"


def main() -> None:
    """Start a daemon, and within its namespaces the trial."""
    with dockerd() as daemon, TemporaryDirectory() as folder:
        trial = [sys.executable, "-m", "harness.docker_pool", folder]
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        env = {"DOCKER_HOST": daemon.endpoint, "PREFECT_HOME": f"{folder}/home"}
        env |= {"PYTHONPATH": paths}  # nsenter changes the working folder
        subprocess.run(daemon.within(*trial), env=os.environ | env, check=True)


def run_audit(folder: Path) -> None:
    """Audit a warehouse in a container of a docker pool."""
    from prefect import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    from flows.deployments.deployments import FILE
    from flows.prefect_server.own_server import apply_settings, run_plain_server
    from tests.runs import ended, write

    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {what}", flush=True)

    made = ended("srtf")
    write(folder / "warehouse", made.start, made.rounds)
    worker_type = import_module("prefect_docker.worker").DockerWorker  # not one of our packages
    template: dict[str, Any] = worker_type.get_default_base_job_template()
    read_only = {ROOT, Path(sys.prefix), *mounts()}
    defaults = {
        "image": PLAIN,
        "image_pull_policy": "Never",
        "network_mode": "host",
        "auto_remove": True,
        "command": f"{sys.executable} -m prefect flow-run execute",
        "volumes": [*(f"{path}:{path}:ro" for path in read_only), f"{folder}:{folder}"],
        "env": {"PREFECT_HOME": f"{folder}/inside", "PYTHONPATH": str(ROOT), "HOME": "/tmp"},
    }
    for name, value in defaults.items():
        template["variables"]["properties"][name]["default"] = value
    with (
        run_plain_server() as access,
        apply_settings(access.client_settings()),
        get_client(sync_client=True) as client,
    ):
        say("server is ready")
        pool = WorkPoolCreate(name=POOL, type="docker", base_job_template=template)
        client.create_work_pool(pool)
        prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
        deploy = ["deploy", "--name", "audit", "--prefect-file", str(FILE)]
        subprocess.run([*prefect, *deploy], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        say("deployed")
        found = client.read_deployment_by_name("audit/audit")
        given = found.parameters | {"warehouse": str(folder / "warehouse")}
        flow_run = client.create_flow_run_from_deployment(found.id, parameters=given)
        worker = subprocess.Popen(
            [*prefect, "worker", "start", "--pool", POOL, "--type", "docker"], cwd=folder
        )
        try:
            ended_run = wait_for(
                lambda: client.read_flow_run(flow_run.id),
                lambda now: bool(now.state and now.state.is_final()),
                every=0.2,
            )
        finally:
            worker.terminate()
            worker.wait()
        assert ended_run.state
        say(f"{ended_run.state.name}: {ended_run.state.message}")


if __name__ == "__main__":
    run_audit(Path(sys.argv[1])) if sys.argv[1:] else main()
