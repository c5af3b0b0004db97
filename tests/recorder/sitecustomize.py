"""Records what a process, and each Python process that it starts, looks up and connects to.

Python imports it where its folder is in PYTHONPATH; LOOKUPS names the file that it adds lines to.
"""

import json
import os
import sys
from typing import Any

LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
REACHES = ("socket.connect", "socket.sendto", "socket.sendmsg")


def record(event: str, arguments: tuple[Any, ...]) -> None:
    """Add a line for each lookup, and for each address that is reached by IP."""
    if event in LOOKUPS:
        whom = arguments[0]
    elif event in REACHES and isinstance(arguments[1], tuple):
        whom = arguments[1][0]
    else:
        return
    if isinstance(whom, bytes):
        whom = whom.decode()
    line = json.dumps([event, whom, sys.argv[:3] if hasattr(sys, "argv") else []])
    file = os.open(os.environ["LOOKUPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


sys.addaudithook(record)
