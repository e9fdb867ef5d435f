# SPDX-License-Identifier: Apache-2.0
"""Sends a capture's frames by an interface, at the rates and for the times that it is told.

    python -m bench.sender INTERFACE CAPTURE

For a line "RATE SECONDS" it answers, when it is through, with a line of how many frames
it has sent; it goes on where it stopped. Frames go in bursts of eight.
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
    """Send at `rate` from the frame `at` on; how many were sent."""
    start = time.monotonic()
    sent, due = 0, 0.0
    while due < seconds:
        wait = start + due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        for _ in range(BURST):
            with contextlib.suppress(OSError):  # the queue is full: offered all the same
                output.send(frames[(at + sent) % len(frames)])
            sent += 1
        due = sent / rate
    return sent


def main() -> int:
    """Serve one interface until the input ends."""
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
