"""Runs commands one after another on the terminal at stdout, at several widths.

    python on_terminals.py WIDTH,WIDTH,… COMMAND …

A COMMAND is a text, as typed after `shockwave`. Each is shown without colour, and at the
first width with colour as well; a line with NUL, width, colour and its number comes before each.
"""

import fcntl
import os
import shlex
import struct
import sys
import termios

from flows.cli import main as cli

cli.end_process = lambda code: None


def main() -> None:
    widths, *commands = sys.argv[1:]
    for first, width in enumerate(map(int, widths.split(","))):
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        for number, command in enumerate(commands):
            for colour in ("plain",) if first else ("plain", "colour"):
                os.environ.pop("NO_COLOR", None)
                if colour == "plain":
                    os.environ["NO_COLOR"] = "1"
                print(f"\0{width}\0{colour}\0{number}", flush=True)
                sys.argv = ["shockwave", *shlex.split(command)]
                try:
                    cli.main()
                except SystemExit:
                    sys.stdout.flush()


main()
