"""Counts to TARGET, a number each STEP seconds; stopped, it saves and later goes on from there."""

import os
import signal
import sys
import time
from pathlib import Path

folder = Path(os.environ["SHOCKWAVE_JOB_FOLDER"])
saved, told = folder / "count", folder / "progress.json"
target, step = int(os.environ["TARGET"]), float(os.environ["STEP"])
stopping: list[int] = []
signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))

count = int(saved.read_text()) if saved.exists() else 0
print("from", count, flush=True)
while count < target and not stopping:
    time.sleep(step)
    count += 1
    told.write_text(f'{{"share": {count / target}}}')  # if it likes, how much of its work is done
new = saved.with_name("count.new")
new.write_text(str(count))
new.replace(saved)  # at once, so that a kill leaves one of the two
print("to", count, flush=True)
sys.exit(0 if count >= target else 75)
