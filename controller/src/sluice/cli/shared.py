# SPDX-License-Identifier: Apache-2.0
"""Provides what the commands that use the API have in common: socket, errors, exit codes,
options."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from sluice.api.client import TIMEOUT, DaemonAbsentError, RequestError, answer
from sluice.cli.printable import printable

FAILED, USAGE, NO_DAEMON = 1, 2, 3
RUN_DIRECTORIES = (Path("/run/sluice"), Path("/run/sluice-up"))
"""Directories of the API sockets of `sluice run` and of `sluice up`."""
SWITCH_SOCKET_END = "-p4rt.sock"
"""Suffix of the switches' P4Runtime sockets, which are in the same directory as the API sockets.

`connection_config` has the default names of these sockets.
"""

PAGE = 1000
"""Number of rows in one request."""
EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no controller answers."


class CommandFailedError(click.ClickException):
    """Reports a failure. The message is printed on standard error."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """Prints the message on standard error: one line, or one line for each problem."""
        click.echo(f"sluice: {printable(self.format_message(), lines=True)}", err=True)


class WrongUsageError(CommandFailedError):
    """Raised when the command line is ambiguous."""

    exit_code = USAGE


class NoDaemonError(CommandFailedError):
    """Raised when no controller answers."""

    exit_code = NO_DAEMON


def _find_socket(socket: Path | None) -> Path:
    """Returns the given API socket, or the only one in `RUN_DIRECTORIES` if none is given."""
    if socket is not None:
        return socket
    found = sorted(
        path
        for directory in RUN_DIRECTORIES
        for path in directory.glob("*.sock")
        if not path.name.endswith(SWITCH_SOCKET_END)
    )
    if len(found) == 1:
        return found[0]
    if not found:
        places = " or ".join(map(str, RUN_DIRECTORIES))
        raise NoDaemonError(
            f"no controller runs here (no socket in {places}); start one with "
            "`sluice run CONFIG`, or name its socket with --socket"
        )
    names = ", ".join(map(str, found))
    raise WrongUsageError(f"several controllers run here ({names}); choose with --socket")


def request(socket: Path | None, body: dict[str, Any], timeout: float = TIMEOUT) -> Any:
    """Sends a request to the controller and returns the data of the answer.

    `timeout` is in seconds; it is extended for long requests. Raises CommandFailedError.
    """
    return full_answer(socket, body, timeout).get("data")


def show_view(
    what: str, socket: Path | None, as_json: bool, table: str | None = None, **filters: Any
) -> None:
    """Requests a view, and prints it as a table or as JSON. Raises CommandFailedError.

    `table` names the layout of the table; the default is `what`. Filters that are None are left out
    of the request.
    """
    print_view(table or what, request(socket, view_request(what, filters)), as_json=as_json)


def view_request(what: str, filters: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the request for a view, without the filters that are None."""
    body = {"command": "show", "what": what}
    return body | {name: value for name, value in filters.items() if value is not None}


def print_view(table: str, data: Any, *, as_json: bool) -> None:
    """Prints the data of a view as a table, or as JSON."""
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        from sluice.cli import tables  # noqa: PLC0415 - slow to import; only tables need it

        tables.show(table, data)


def pages(
    socket: Path | None, body: dict[str, Any], limit: int | None
) -> Iterator[list[dict[str, Any]]]:
    """Yields the rows of a view in pages, at most `limit` rows in total.

    Requests the pages one by one, and the controller makes each page on request. So neither the
    controller nor the client holds all rows in memory. Raises CommandFailedError.
    """
    path = _find_socket(socket)
    while True:
        size = PAGE if limit is None else min(PAGE, limit)
        found = full_answer(path, body | {"limit": size})
        rows = found.get("data") or []
        yield rows
        if limit is not None:
            limit -= len(rows)
        following = found.get("next")
        if following is None or limit == 0:
            return
        body = body | following


def full_answer(
    socket: Path | None, body: dict[str, Any], timeout: float = TIMEOUT
) -> dict[str, Any]:
    """Sends a request to the controller and returns the answer with all fields.

    Raises CommandFailedError.
    """
    try:
        return answer(_find_socket(socket), body, timeout)
    except DaemonAbsentError as error:
        raise NoDaemonError(str(error)) from error
    except RequestError as error:
        raise CommandFailedError(str(error)) from error


def common(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of commands that use the API."""
    socket = click.option(
        "--socket",
        type=click.Path(path_type=Path),
        envvar="SLUICE_SOCKET",
        help="The controller's socket; default: the only one in /run/sluice and /run/sluice-up.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    return socket(as_json(command))
