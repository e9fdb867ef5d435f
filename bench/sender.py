# SPDX-License-Identifier: Apache-2.0
"""Sends the frames of a capture by an interface. Reads rates and durations from standard input.

    python -m bench.sender INTERFACE CAPTURE

For each input line "RATE SECONDS", the program sends frames, then prints how many it has sent. The
frames of a line continue where those of the previous line ended. Frames are sent in bursts of
eight.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from pathlib import Path

from bench.frames import read_pcap

BURST = 8


def send(output: socket.socket, frames: list[bytes], at: int, rate: float, seconds: float) -> int:
    """Sends frames at `rate`, starting with the frame `at`. Returns the number of frames sent."""
    start = time.monotonic()
    sent, due = 0, 0.0
    while due < seconds:
        wait = start + due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        for _ in range(BURST):
            with contextlib.suppress(OSError):  # a full queue: the frame counts as sent
                output.send(frames[(at + sent) % len(frames)])
            sent += 1
        due = sent / rate
    return sent


def main() -> int:
    """Sends by one interface until the input ends."""
    interface, capture = sys.argv[1:]
    frames = read_pcap(Path(capture))
    output = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    output.bind((interface, 0))
    print("ready", flush=True)
    at = 0
    for line in sys.stdin:
        rate, seconds = (float(word) for word in line.split())
        sent = send(output, frames, at, rate, seconds)
        at += sent
        print(sent, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
