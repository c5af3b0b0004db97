"""Options of a job: when it may start, how often it is retried, and more."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from predictor.errors import InputError

MOST_TASKS = 1_000
"""Most tasks of an array. An engineering bound."""

MOST_NAMED = 1_000
"""Most jobs that a job waits for, most secrets and most volumes. An engineering bound."""

MOST_RETRIES = 100
"""Most retries. An engineering bound."""

INDEX = "SHOCKWAVE_ARRAY_INDEX"
"""Environment variable with the index of an array's task."""

FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Name of a secret, a network or a volume, and of a tenant with secrets: names of files."""

_ARRAY = re.compile(
    r"(?P<indices>\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*)(%(?P<most>\d{1,9}))?", re.A
)


@dataclass(frozen=True, slots=True)
class Task:
    """The place of a job in an array; the tasks of an array have consecutive ids.

    Attributes:
        index: Its index, which its user chose.
        place: Its place among the tasks, from 0.
        tasks: Number of tasks; 0 for a job outside arrays.
        at_once: Most tasks that hold GPUs at a time; 0 for any number.
    """

    index: int = 0
    place: int = 0
    tasks: int = 0
    at_once: int = 0

    def index_is(self, text: str) -> bool:
        """Return whether `NAME[` and this text name the task."""
        return self.tasks > 0 and text == f"{self.index}]"


NO_ARRAY = Task()


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of a job.

    Attributes:
        after: Ids of jobs that must finish before it may start.
        retries: Number of retries after crashes; -1 for the default of `tasks.backoff`.
        deadline_seconds: Time from its arrival by which it should end; 0 for none. Among the
            policies here, only `mst` reads it, with its parameter `deadlines`.
        secrets: Names of the files that its containers find in /run/secrets.
        priority: Its weight among the jobs of its tenant, which share the sum of their budgets.
        network: Name of the cluster's network that its containers join; empty for none.
        volumes: Names of the cluster's volumes that its containers find in /volumes.
    """

    after: tuple[int, ...] = ()
    task: Task = NO_ARRAY
    retries: int = -1
    deadline_seconds: float = 0.0
    secrets: tuple[str, ...] = ()
    priority: float = 1.0
    network: str = ""
    volumes: tuple[str, ...] = ()

    def check(self, place: str, tenant: str) -> None:
        """Refuse invalid options of a tenant's job, in an error that names `place`.

        Raises:
            InputError: An option is invalid.
        """
        named = {"after": self.after, "secrets": self.secrets, "volumes": self.volumes}
        for name, given in named.items():
            if len(given) > MOST_NAMED:
                raise InputError(f"{place}, {name}", f"names more than {MOST_NAMED:,}", "name less")
        if not 1e-6 <= self.priority <= 1e6:
            problem = f"{self.priority:g} is not a priority"
            raise InputError(f"{place}, priority", problem, "give a number from 1e-06 to 1e+06")
        if not -1 <= self.retries <= MOST_RETRIES:
            problem, remedy = f"{self.retries} is not a number of retries", "give one from 0 to 100"
            raise InputError(f"{place}, retries", problem, remedy)
        if not 0.0 <= self.deadline_seconds < float("inf"):
            problem = f"{self.deadline_seconds} is not a time of 0 or more"
            raise InputError(
                f"{place}, deadline_seconds", problem, "give seconds from its arrival; 0 for none"
            )
        for secret in self.secrets:
            if not FILE_NAME.fullmatch(secret) or self.secrets.count(secret) > 1:
                raise InputError(
                    f"{place}, secrets",
                    f"{secret[:80]!r} is not the name of a secret, or is there twice",
                    "use letters, digits, '.', '_' and '-', at most 100; never the secret itself",
                )
        for field, names in (("network", [self.network]), ("volumes", self.volumes)):
            for name in filter(None, names):
                if not FILE_NAME.fullmatch(name) or names.count(name) > 1:
                    problem = f"{name[:80]!r} is not a name, or is there twice"
                    remedy = "use letters, digits, '.', '_' and '-', at most 100"
                    raise InputError(f"{place}, {field}", problem, remedy)
        if self.secrets and not FILE_NAME.fullmatch(tenant):
            raise InputError(
                f"{place}, tenant",
                f"{tenant[:80]!r} has no folder of secrets",
                "use letters, digits, '.', '_' and '-', at most 100",
            )


NO_OPTIONS = JobOptions()
"""The default options."""


def parse_tasks(text: str) -> tuple[Task, ...]:
    """Parse the tasks of an array.

    The text is indices and, after a percent sign, how many may hold GPUs at a time: `0-31%4`,
    `1,3,5-7`.

    Raises:
        InputError: The text has another form, or names too many tasks.
    """
    found = _ARRAY.fullmatch(text)
    if not found:
        raise InputError(
            "array", f"{text[:40]!r} is not an array", "give one like 0-31%4 or 1,3,5-7"
        )
    indices: list[int] = []
    for part in found["indices"].split(","):
        first, _, last = part.partition("-")
        coming = range(int(first), int(last or first) + 1)
        if not coming:
            raise InputError("array", f"{part!r} ends before it begins", "give one like 0-31")
        if len(indices) + len(coming) > MOST_TASKS:
            raise InputError("array", f"has more than {MOST_TASKS:,} tasks", "give several arrays")
        indices += coming
    if len({*indices}) < len(indices):
        raise InputError("array", "has an index twice", "give each once")
    most = int(found["most"] or 0)
    if found["most"] and not most:
        raise InputError("array", "lets no task run", "give at least %1")
    return tuple(Task(index, place, len(indices), most) for place, index in enumerate(indices))


def array_of(job_id: int, options: JobOptions) -> int | None:
    """Return the id of the first task of a job's array; None for a job outside arrays."""
    return job_id - options.task.place if options.task.tasks else None


def find_blocked(waits: Mapping[int, JobOptions], frozen: set[int]) -> set[int]:
    """Return the jobs that will not run (`frozen`), and all that wait for them, even indirectly."""
    found = frozen & waits.keys()
    behind = [job_id for job_id, options in waits.items() if options.after]
    while new := {j for j in behind if j not in found and not found.isdisjoint(waits[j].after)}:
        found |= new
    return found
