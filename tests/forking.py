"""Workers of pytest-xdist that are forked from one process, which has collected the tests.

What tests import, and to collect them, takes each worker seconds of processor time. With more
workers than processors one process does so before all of them start.

pytest-xdist starts a worker as a program: this file, which hands its input and output to the
process that has collected, has that fork, and ends when what was forked does.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from select import select
from typing import Any

ROOT = Path(__file__).parents[1]

COLLECT = "import sys; sys.path[0] = sys.argv[1]; from tests.forking import collect; collect()"


def start(config: Any, folder: Path) -> str | None:
    """Start the process that collects, and wait until it has.

    Args:
        config: The configuration of the process that has the workers. The other ends with it.
        folder: Where both meet.

    Returns:
        The command of a worker; None if not all tests can be collected, which workers that
        collect themselves report.
    """
    address = str(folder / "workers")
    arguments = map(str, config.invocation_params.args)
    collecting = subprocess.Popen(
        [sys.executable, "-c", COLLECT, str(ROOT), address, *arguments],
        cwd=config.invocation_params.dir,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert collecting.stdin
    assert collecting.stdout
    config.add_cleanup(collecting.wait)
    config.add_cleanup(collecting.stdin.close)  # called before
    with collecting.stdout as output:
        ready = output.read()
    return shlex.join([sys.executable, "-I", "-S", __file__, address]) if ready else None


def collect() -> None:
    """Collect the tests, and fork workers until standard input ends."""
    import atexit
    import gc

    import pytest

    # Called after all that is registered from here on: to free all that was imported takes each
    # worker a second.
    atexit.register(os._exit, 0)
    _, _, address, *arguments = sys.argv
    sys.argv[1:] = []
    ready = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    if pytest.main([*arguments, "-n0", "--dist", "no", "--collect-only", "--quiet"]):
        return
    gc.freeze()
    # Ctrl-C reaches all processes: workers end their tests, then those who wait for them end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(ready, b"ready")
        os.close(ready)
        _fork_workers(listener)


def _fork_workers(listener: socket.socket) -> None:
    """Fork a worker for each program that asks; returns in a worker, too, after its end.

    A program ends with its worker, and a worker is killed with its program.
    """
    workers: dict[socket.socket, int] = {}
    wanted = [0, listener]
    while wanted or workers:
        for source in select([*wanted, *workers], [], [])[0]:
            if source == 0:
                wanted = []
            elif source is listener:
                program, _ = listener.accept()
                _, files, _, _ = socket.recv_fds(program, 1, 4)
                workers[program] = os.fork()
                if not workers[program]:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    for inherited in (listener, *workers):
                        inherited.close()
                    for number, file in enumerate(files[:3]):
                        os.dup2(file, number)
                        os.close(file)
                    # As in each program that execnet starts.
                    exec(eval(sys.stdin.readline()), sys.modules["__main__"].__dict__)
                    return
                for file in files:
                    os.close(file)
            else:
                number = workers.pop(source)
                source.close()
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)


def attach(address: str) -> None:
    """Have a worker forked with this process's input and output, and wait for its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end, worker = os.pipe()
    with socket.socket(socket.AF_UNIX) as origin:
        origin.connect(address)
        socket.send_fds(origin, [b" "], [0, 1, 2, worker])
        with open(os.devnull, "r+") as nowhere:
            for number in (0, 1, worker):
                os.dup2(nowhere.fileno(), number)
        os.read(end, 1)


if __name__ == "__main__":
    attach(sys.argv[1])
