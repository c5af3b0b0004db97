"""The least makespan against another solver of the same linear program."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from solver.backends.makespan import find_least_makespan
from tests.strategies import examples


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 5), st.integers(1, 40))
def test_it_is_the_optimum_of_the_linear_program(
    seed: int, jobs: int, types: int, gpus: int
) -> None:
    rng = np.random.default_rng(seed)
    seconds = rng.lognormal(8.0, rng.uniform(0.1, 2.0), (jobs, 1))
    seconds = seconds * np.exp(rng.uniform(0.0, 3.0, (jobs, types)) * rng.integers(0, 2))
    runs = rng.random((jobs, types)) < rng.uniform(0.2, 1.0)
    runs[np.arange(jobs), rng.integers(0, types, jobs)] = True
    gangs, capacities = 2.0 ** rng.integers(0, 4, jobs), rng.integers(1, gpus + 1, types)
    job_of, type_of = np.nonzero(runs)
    e, g = seconds[job_of, type_of], gangs[job_of]
    none = rng.integers(0, 2)  # GPUs of another type, which others keep
    found = find_least_makespan(e, g, job_of, type_of, np.append(capacities, [0] * none))

    rows = np.arange(len(e))
    work, busy, used = np.zeros((jobs, len(e))), np.zeros((jobs, len(e))), np.zeros((types, len(e)))
    work[job_of, rows], busy[job_of, rows], used[type_of, rows] = 1.0 / e, 1.0, g
    limits = np.vstack([np.c_[busy, -np.ones(jobs)], np.c_[used, -capacities.astype(float)]])
    best = linprog(
        np.append(np.zeros(len(e)), 1.0),
        A_ub=limits,
        b_ub=np.zeros(len(limits)),
        A_eq=np.c_[work, np.zeros(jobs)],
        b_eq=np.ones(jobs),
    ).fun
    np.testing.assert_allclose(found, best, rtol=1e-6)


def test_an_estimate_of_many_jobs_is_near_and_never_before_the_longest_job() -> None:
    rng, jobs = np.random.default_rng(0), 1000
    seconds = rng.lognormal(8.0, 1.0, (jobs, 1)) * rng.uniform(1.0, 4.0, (jobs, 2))
    rows = np.ones(2 * jobs), np.repeat(np.arange(jobs), 2), np.tile([0, 1], jobs)
    gpus = np.array([40, 60])
    exact, near = (
        find_least_makespan(seconds.ravel(), *rows, gpus, exact=e) for e in (True, False)
    )
    assert abs(near / exact - 1.0) < 0.05
    seconds[500] = 1e6
    near = find_least_makespan(seconds.ravel(), *rows, gpus, exact=False)
    assert near >= 1e6
