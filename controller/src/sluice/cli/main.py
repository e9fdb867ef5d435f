# SPDX-License-Identifier: Apache-2.0
"""The commands. Tables for people by default, the API's JSON with --json."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from sluice import __version__
from sluice.api.client import DaemonAbsentError, RequestError, ask
from sluice.cli import tables

FAILED, USAGE, NO_DAEMON = 1, 2, 3
RUN_DIRECTORY = Path("/run/sluice")

EPILOG = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no controller answers."


class CommandFailedError(click.ClickException):
    """A failure; the message goes to standard error."""

    exit_code = FAILED

    def show(self, file: Any = None) -> None:
        """One line for people."""
        click.echo(f"sluice: {self.format_message()}", err=True)


class WrongUsageError(CommandFailedError):
    """What was asked for is not clear."""

    exit_code = USAGE


class NoDaemonError(CommandFailedError):
    """Nobody answers."""

    exit_code = NO_DAEMON


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.version_option(__version__, prog_name="sluice")
def cli() -> None:
    """Sluice: FRR's routes in a P4 switch."""


@cli.command(epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Validate the configuration and exit.")
def run(config: Path, check: bool) -> None:
    """Run the controller of one router, described by the YAML file CONFIG.

    Prints `sluice: ready` on standard error once the switch is programmed with the interfaces.
    """
    if check:
        _check(config)
        return
    from sluice.app import run as run_daemon  # noqa: PLC0415 - `sluice show` needs none of it

    sys.exit(run_daemon(config))


def _check(config: Path) -> None:
    from sluice.config import ConfigError, load_config  # noqa: PLC0415 - likewise

    try:
        loaded = load_config(config)
    except ConfigError as error:
        raise CommandFailedError(str(error)) from error
    click.echo(f"{config}: router {loaded.router}, {len(loaded.interfaces)} interfaces: fine")


# --- show ----------------------------------------------------------------------------------------


def _find_socket(socket: Path | None) -> Path:
    """The socket given, or the only one under /run/sluice."""
    if socket is not None:
        return socket
    found = sorted(RUN_DIRECTORY.glob("*.sock"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise NoDaemonError(
            f"no controller runs here (no socket in {RUN_DIRECTORY}); start one with "
            "`sluice run CONFIG`, or name its socket with --socket"
        )
    names = ", ".join(path.name for path in found)
    raise WrongUsageError(f"several controllers run here ({names}); choose with --socket")


def _show(what: str, socket: Path | None, as_json: bool, **filters: Any) -> None:
    request = {"command": "show", "what": what}
    request |= {name: value for name, value in filters.items() if value is not None}
    try:
        data = ask(_find_socket(socket), request)
    except DaemonAbsentError as error:
        raise NoDaemonError(str(error)) from error
    except RequestError as error:
        raise CommandFailedError(str(error)) from error
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        tables.show(what, data)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    socket = click.option(
        "--socket",
        type=click.Path(path_type=Path),
        envvar="SLUICE_SOCKET",
        help="The controller's socket; default: the only one in /run/sluice.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="JSON, for programs.")
    return socket(as_json(command))


@cli.group(epilog=EPILOG)
def show() -> None:
    """Show what the controller knows and what the switch holds."""


def _add_show(what: str, text: str) -> None:
    @_common
    def command(socket: Path | None, as_json: bool) -> None:
        _show(what, socket, as_json)

    show.command(what, help=text, epilog=EPILOG)(command)


_add_show("status", "Is the switch connected, and does it hold what it should?")
_add_show("interfaces", "Layer-3 interfaces: state, addresses, counters.")
_add_show("nexthops", "Next hops and next-hop groups in use.")
_add_show("neighbors", "Neighbours on the router's links.")
_add_show("punts", "Packets sent to the CPU, by reason, and what became of them.")
_add_show("counters", "Drops by reason in the switch; the controller's own counters.")


@show.command("routes", epilog=EPILOG)
@click.argument("prefix", required=False)
@click.option("--limit", type=click.IntRange(min=1), help="Show at most so many.")
@_common
def show_routes(prefix: str | None, limit: int | None, socket: Path | None, as_json: bool) -> None:
    """Show the prefixes that the switch forwards by, all of them or one PREFIX."""
    _show("routes", socket, as_json, prefix=prefix, limit=limit)


@cli.command(epilog=EPILOG)
@_common
def metrics(socket: Path | None, as_json: bool) -> None:
    """Print all counts in Prometheus' text format."""
    _show("metrics", socket, as_json)


# --- completion ----------------------------------------------------------------------------------


@cli.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: source <(sluice completion bash)
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise CommandFailedError(f"no completion for {shell}")
    click.echo(completer(cli, {}, "sluice", "_SLUICE_COMPLETE").source())


def main() -> None:
    """The entry point; the process's exit code says how it went."""
    try:
        cli.main(prog_name="sluice", standalone_mode=True)
    except BrokenPipeError:  # `sluice show routes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
