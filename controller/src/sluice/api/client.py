# SPDX-License-Identifier: Apache-2.0
"""Sends requests to the daemon's API, for the `sluice` command and other programs.

Depends on the standard library and on `limits`.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from sluice.api.limits import REQUEST_BYTES

TIMEOUT = 30.0
BYTES_A_SECOND = 100_000
"""Bytes of a request for which the timeout grows by one second. The controller checks
the rules in a request before it answers, which takes long for many rules."""


class DaemonAbsentError(Exception):
    """Raised when no daemon listens on the socket."""


class RequestError(Exception):
    """Raised when the daemon refused the request, or when its answer is invalid."""


def ask(path: Path, request: dict[str, Any]) -> Any:
    """Sends a request to the daemon and returns the field `data` of the answer.

    Raises DaemonAbsentError or RequestError.
    """
    return answer(path, request).get("data")


def answer(path: Path, request: dict[str, Any], timeout: float = TIMEOUT) -> dict[str, Any]:
    """Sends a request to the daemon and returns the whole answer.

    `timeout`, in seconds, grows with the length of the request. The answer has `next` if another
    page follows. Raises DaemonAbsentError or RequestError, with a message that can be shown to the
    user.
    """
    line = json.dumps(request).encode() + b"\n"
    if len(line) - 1 > REQUEST_BYTES:
        raise RequestError(
            f"a request of {len(line) - 1} bytes is over the controller's limit of"
            f" {REQUEST_BYTES}; send fewer rules at a time"
        )
    timeout += len(line) / BYTES_A_SECOND
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(str(path))
            # The server may refuse a request and close the connection before the whole request is
            # sent. The answer then has the reason, so go on and read it.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(line)
            found = json.loads(_line(connection))
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise DaemonAbsentError(
            f"no controller answers on {path}; start one with `sluice run CONFIG`, or name its "
            "socket with --socket"
        ) from error
    except PermissionError as error:
        raise RequestError(f"{path}: permission denied; use root or the socket's group") from error
    except TimeoutError as error:
        raise RequestError(f"{path}: no answer within {timeout:.0f} s") from error
    except (OSError, ValueError) as error:
        raise RequestError(f"{path}: {error}") from error
    if not isinstance(found, dict) or not found.get("ok"):
        message = found.get("error") if isinstance(found, dict) else None
        raise RequestError(str(message or f"{path}: the answer is invalid: {found!r}"))
    return found


def _line(connection: socket.socket) -> bytes:
    chunks = []
    while True:
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise ValueError("the controller closed the connection without an answer")
        chunks.append(chunk)
        if chunk.endswith(b"\n"):
            return b"".join(chunks)
