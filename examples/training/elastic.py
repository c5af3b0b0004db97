"""Fits a line by as many workers as torchrun has, the same line for any number of them.

Worker 0 saves each epoch. When a node comes or goes, torchrun starts all workers again, and they
continue from there.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed

folder = Path(os.environ["SHOCKWAVE_JOB_FOLDER"])
saved = folder / "checkpoint.json"
job = json.loads((folder / "job.json").read_text())
size, samples = job["batch_size"], job["samples_per_epoch"]
rest = float(os.environ.get("REST", "0"))


def replace(path: Path, content: dict[str, Any]) -> None:
    """At once, so that a kill leaves the old file or the new one."""
    (new := path.with_suffix(".new")).write_text(json.dumps(content))
    new.replace(path)


distributed.init_process_group("gloo")
worker, workers = distributed.get_rank(), distributed.get_world_size()
start = {"epoch": 0, "seconds": 0.0, "weights": [0.0, 0.0]}
found = [json.loads(saved.read_text()) if saved.exists() else start] if worker == 0 else [None]
distributed.broadcast_object_list(found)
state: dict[str, Any] = found[0] or start
weights = torch.tensor(state["weights"], dtype=torch.float64)
inputs = torch.linspace(-1, 1, samples, dtype=torch.float64)
points = torch.stack([inputs, torch.ones_like(inputs)], 1)
targets = 2 * inputs + 1
print(f"worker {worker} of {workers} from epoch {state['epoch']}", flush=True)

while state["epoch"] < job["epochs"]:
    began, total = time.monotonic(), 0.0
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(state["epoch"]))
    for batch in torch.split(order, size):
        own = batch[worker::workers]
        errors = points[own] @ weights - targets[own]
        sums = torch.cat([points[own].T @ errors, errors.square().sum()[None]])
        distributed.all_reduce(sums)
        weights -= 0.1 * sums[:2] / len(batch)
        total += sums[2].item()
        time.sleep(rest)
    seconds = time.monotonic() - began
    line = {"epoch": state["epoch"], "batch_size": size, "steps": -(-samples // size)}
    line |= {"samples": samples, "seconds": seconds, "loss": total / samples, "workers": workers}
    state["epoch"] += 1
    state |= {"seconds": state["seconds"] + seconds, "weights": weights.tolist()}
    if worker == 0:
        with (folder / "telemetry.jsonl").open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        replace(saved, state)
        progress = {"epoch": state["epoch"], "step": 0, "batch_size": size}
        replace(folder / "progress.json", progress | {"run_seconds": state["seconds"]})
distributed.destroy_process_group()
