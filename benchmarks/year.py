"""Cost of questions about the last day after a year of scheduling.

    python -m benchmarks.year [--days 365] [--gpus 8] [--load 0.5] [--repeat 3]
        [--warehouse FOLDER] [--json]

Jobs keep coming, in rounds of two minutes, and the run has not ended: its rounds are in parts, as
those of a service are, and those that are closed are copied (`warehouse.analytics.copies`) before
the first question, which would do it otherwise. It is kept where FOLDER is given for the next call.
Shown is the processor time of a part's copies, where there were none, and of each question, the
median of `--repeat` processes, imports included. Bound: one second each.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import process_time

from benchmarks.loads import Case, stream
from benchmarks.many_runs import MOST_SECONDS, processor_seconds, show
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from tasks.record import Settings, make_pool
from warehouse.analytics.copies import read_copies
from warehouse.analytics.marts import keep_fast
from warehouse.analytics.questions import Analytics

DAY = 86_400
ROUND_SECONDS = 120.0

QUESTIONS = {
    "rounds": "SELECT count(*), sum(preemptions), avg(busy_gpus) FROM rounds"
    " WHERE clock_seconds >= {since}",
    "jobs that ended": "SELECT tenant, count(*), avg(jct_seconds) FROM job_outcomes"
    " WHERE finish_seconds >= {since} GROUP BY tenant",
    "who held what": "SELECT job_id, sum(scale_factor) FROM placements"
    " WHERE clock_seconds >= {since} GROUP BY job_id",
    "leases": "SELECT job_id, sum(seconds * scale_factor) FROM leases"
    " WHERE start_seconds >= {since} GROUP BY job_id ORDER BY 2 DESC LIMIT 5",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--load", type=float, default=0.5, help="work that comes, over capacity")
    parser.add_argument("--repeat", type=int, default=3, help="processes of each question")
    parser.add_argument("--warehouse", type=Path, help="where the run is kept")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    slow = False
    with tempfile.TemporaryDirectory() as temporary:
        warehouse = options.warehouse or Path(temporary) / "warehouse"
        if not warehouse.exists():
            make(warehouse, options.days, options.gpus, options.load)
        before, began = len(read_copies(warehouse).parts), process_time()
        keep_fast(warehouse)
        if made := len(read_copies(warehouse).parts) - before:
            took = (process_time() - began) / made
            row = {"days": options.days, "cpu_s": round(took, 2), "question": "(a part's copies)"}
            show(row, options.json)
        last = "SELECT max(clock_seconds) AS last FROM rounds"
        since = Analytics(warehouse).frame(last)["last"].item() - DAY
        for name, question in QUESTIONS.items():
            line = ["sql", question.format(since=since)]
            took = median(processor_seconds(warehouse, line) for _ in range(options.repeat))
            slow |= took > MOST_SECONDS
            row = {"days": options.days, "cpu_s": round(took, 2), "question": name}
            show(row, options.json)
    sys.exit(slow)


def make(warehouse: Path, days: int, gpus: int, load: float) -> None:
    """Simulate a stream under shortest remaining time first, in as many rounds as the days have."""
    jobs, workload = 100, None
    while workload is None or workload.specs[-1].arrival_seconds < days * DAY:
        jobs *= 2
        workload = stream(Case("srtf", gpus, load, 0, jobs))
    settings = Settings("srtf", make_pool(gpus), round_seconds=ROUND_SECONDS)
    simulate(make_start(workload, settings), warehouse, rounds=int(days * DAY / ROUND_SECONDS))


if __name__ == "__main__":
    main()
