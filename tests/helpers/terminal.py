"""Commands on a real terminal: a pseudo-terminal of so many columns."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

# All commands in one process, as importing torch takes longer than they do.
SCRIPT = """
import json, sys
from coterie.cli.main import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as ended:
        print("exit code", ended.code)
    print("\\x1e", flush=True)
"""
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(commands: list[list[str]], columns: int, cwd: Path) -> list[str]:
    """Return what each command wrote to a terminal of this width, with its control sequences."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env={**environment, "TERM": "xterm", "OMP_NUM_THREADS": "1"},
    )
    os.close(slave)
    output = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        output += part
    os.close(master)
    assert process.wait(300) == 0, output.decode()
    return output.decode().replace("\r\n", "\n").split("\x1e\n")[:-1]


def plain_text(output: str) -> str:
    """Return the text without control sequences."""
    return CONTROL.sub("", output)


def screen(output: str) -> list[str]:
    """Return the lines that stand on the screen at the end; understands what a progress line writes."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", output):
        if token == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif token == "\r":
            pass  # each line is written anew after it was erased
        elif re.fullmatch(r"\x1b\[\d*A", token):
            row -= int(token[2:-1] or 1)
        elif token == "\x1b[2K":
            lines[row] = ""
        elif not token.startswith("\x1b"):
            lines[row] += token
    return lines
