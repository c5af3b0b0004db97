"""Fits a line to points by gradient descent: data by HTTP, a loss for each epoch to an endpoint.

Stopped, it saves, and later continues as if it had not been stopped.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

folder = Path(os.environ["SHOCKWAVE_JOB_FOLDER"])
saved, told = folder / "checkpoint.json", folder / "progress.json"
epochs, rest = int(os.environ["EPOCHS"]), float(os.environ.get("REST", "0"))
stopping: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))

with urlopen(os.environ["DATA_URL"], timeout=60) as answer:
    points = [tuple(map(float, line.split(b","))) for line in answer]
start = {"epoch": 0, "slope": 0.0, "offset": 0.0}
state = json.loads(saved.read_text()) if saved.exists() else start
print("from epoch", state["epoch"], flush=True)
while state["epoch"] < epochs and not stopping:
    errors = [state["slope"] * x + state["offset"] - y for x, y in points]
    slope = sum(error * x for error, (x, _) in zip(errors, points, strict=True)) / len(points)
    state["slope"] -= 0.1 * slope
    state["offset"] -= 0.1 * sum(errors) / len(points)
    state["epoch"] += 1
    row = {"epoch": state["epoch"], "loss": sum(error**2 for error in errors) / len(points)}
    urlopen(Request(os.environ["LOG_URL"], json.dumps(row).encode()), timeout=60).close()
    told.write_text(f'{{"share": {state["epoch"] / epochs}}}')
    time.sleep(rest)
new = saved.with_suffix(".new")
new.write_text(json.dumps(state))
new.replace(saved)  # at once, so that a kill leaves one of the two
print("to epoch", state["epoch"], flush=True)
sys.exit(0 if state["epoch"] >= epochs else 75)
