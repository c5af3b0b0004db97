"""Workers of pytest-xdist that are forked from one process, which has collected the tests.

What tests import, and to collect them, takes each worker seconds of processor time. With more
workers than processors one process does so before all of them start.

pytest-xdist starts a worker as a program: this file, which hands its input and output to the
process that has collected, has that fork, and ends when what was forked does.
"""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from select import select
from typing import Any


def start(config: Any, folder: Path) -> str | None:
    """Start the process that collects, and wait until it has; the command of a worker.

    Args:
        config: The configuration of the process that has the workers. The other ends with it.
        folder: Where both meet.
    """
    address = str(folder / "workers")
    arguments = map(str, config.invocation_params.args)
    collecting = subprocess.Popen(
        [sys.executable, "-c", "from tests.forking import collect; collect()", address, *arguments],
        cwd=config.rootpath,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert collecting.stdin
    assert collecting.stdout
    config.add_cleanup(collecting.wait)
    config.add_cleanup(collecting.stdin.close)  # called before
    with collecting.stdout as said:
        return f"{sys.executable} -I -S {__file__} {address}" if said.read() else None


def collect() -> None:
    """Collect the tests, and fork workers until standard input ends."""
    import gc

    import pytest

    _, address, *arguments = sys.argv
    sys.argv[1:] = []
    ready = os.dup(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    # Each worker says what cannot be collected.
    pytest.main([*arguments, "-n0", "--dist", "no", "--collect-only", "--quiet"])
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        os.write(ready, b"ready")
        os.close(ready)
        if _fork_workers(listener):
            return
    os._exit(0)  # it has nothing to write


def _fork_workers(listener: socket.socket) -> bool:
    """Fork a worker for each program that asks; true in a worker, after its end.

    A program ends with its worker, and a worker is killed with its program.
    """
    workers: dict[socket.socket, int] = {}
    wanted = [0, listener]
    while wanted or workers:
        for told in select([*wanted, *workers], [], [])[0]:
            if told == 0:
                wanted = []
            elif told is listener:
                program, _ = listener.accept()
                _, files, _, _ = socket.recv_fds(program, 1, 4)
                workers[program] = os.fork()
                if not workers[program]:
                    for one in (listener, *workers):
                        one.close()
                    for number, file in enumerate(files[:3]):
                        os.dup2(file, number)
                        os.close(file)
                    # As in each program that execnet starts.
                    exec(eval(sys.stdin.readline()), sys.modules["__main__"].__dict__)
                    return True
                for file in files:
                    os.close(file)
            else:
                number = workers.pop(told)
                told.close()
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
    return False


def attach(address: str) -> None:
    """Have a worker forked with this process's input and output, and wait for its end."""
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
