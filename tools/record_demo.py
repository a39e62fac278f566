"""Records the demo as a terminal shows it, for the documentation site: `python tools/record_demo.py`.

The real command runs in a terminal of its own, and what it writes is kept with its times in docs/images/demo.cast, in
asciinema's format (asciicast v2). `asciinema play docs/images/demo.cast` plays it anywhere.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
CAST = ROOT / "docs" / "images" / "demo.cast"
WIDTH, HEIGHT = 140, 36
COMMAND = ["suiro", "demo", "--plain", "--flights", "20000"]


def main() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(WIDTH), "LINES": str(HEIGHT)}
        program = Path(sys.executable).with_name(COMMAND[0])
        os.execv(program, [str(program), *COMMAND[1:]])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    began = time.monotonic()
    header = {"version": 2, "width": WIDTH, "height": HEIGHT, "title": " ".join(COMMAND)}
    typed = f"$ {' '.join(COMMAND)}\r\n"
    lines = [json.dumps(header), json.dumps([0.0, "o", typed])]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := _read(terminal):
        text = decoder.decode(data).replace(str(ROOT), "~/suiro")
        if text:
            lines.append(json.dumps([round(time.monotonic() - began, 2), "o", text], ensure_ascii=False))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        sys.exit(f"{' '.join(COMMAND)} ended with {code}; nothing was recorded")
    CAST.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{CAST.relative_to(ROOT)}: {len(lines)} events, {time.monotonic() - began:.0f} s")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


if __name__ == "__main__":
    main()
