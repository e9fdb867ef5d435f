# SPDX-License-Identifier: Apache-2.0
"""Defines the commands `sluice spd` and `sluice flow-cache`; `main` adds them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import click

from sluice.cli.complete import SPDS
from sluice.cli.shared import EPILOG, CommandFailedError, NoDaemonError, common, request

PROGRESS_SECONDS = 1.0
"""Time between two requests for the progress."""
CHANGE_TIMEOUT = 600.0
"""Longest time for the controller to change rules, in seconds. A change of a million rules may take
a minute; meanwhile, the command shows the progress."""

_FILES = click.argument("files", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path))
_CONFIGURED = click.option(
    "--configured",
    metavar="SPD",
    multiple=True,
    shell_complete=SPDS,
    help="Instead of FILE: use the rules that the router's configuration has for this SPD. If they"
    " are in a file, the file is read now.",
)
_MESSAGE = click.option(
    "--message", "-m", metavar="TEXT", help="Reason of the change, for `sluice spd log`."
)
_SPD = click.argument("spd", required=False, shell_complete=SPDS)
_NUMBER = click.argument("number", type=click.IntRange(min=1))


@click.group(epilog=EPILOG)
def spd() -> None:
    """Check, compare and commit security policies."""


def _rules(files: tuple[Path, ...], configured: tuple[str, ...]) -> dict[str, Any]:
    """Returns the request fields that contain or name the rules. Raises CommandFailedError."""
    if bool(files) == bool(configured):
        raise click.UsageError("give either FILE... or --configured SPD")
    if configured:
        return {"configured": list(configured)}
    return {"files": [_read(path) for path in files]}


def _read(path: Path) -> dict[str, str]:
    try:
        return {"name": str(path), "text": path.read_text(encoding="utf-8")}
    except OSError as error:
        raise CommandFailedError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandFailedError(f"{path}: is not UTF-8 text") from error


def _print(what: str, data: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        from sluice.cli import tables  # noqa: PLC0415 - slow to import; only tables need it

        tables.show(what, data)


@spd.command("check", epilog=EPILOG)
@_FILES
@_CONFIGURED
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Check against this configuration of a router, without asking a controller.",
)
@click.option(
    "--frr",
    type=click.Path(path_type=Path, allow_dash=True),
    help="FRR's configuration: a file, a directory, or - for standard input. The check then warns"
    " of rules that break the BGP and OSPF sessions in it.",
)
@click.option(
    "--commit",
    "number",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Instead of FILE: check the rules right after this commit of `sluice spd log`.",
)
@common
def check(
    *,
    files: tuple[Path, ...],
    configured: tuple[str, ...],
    config: Path | None,
    number: int | None,
    frr: Path | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Validate rules, and warn of likely mistakes.

    Each FILE has the rules of the SPD that it names. The running controller checks the rules, since
    it knows the bundles and this router's addresses. If no controller runs, or with --config, this
    command checks the files itself.
    """
    routing = _read_frr(frr)
    if number is not None and (files or configured or config):
        raise click.UsageError("--commit cannot be given with FILE, --configured or --config")
    rules: dict[str, Any] = {"commit": number}
    if number is None:
        rules = _rules(files, configured)
    if config is None:
        body = {"command": "spd check"} | rules | ({} if routing is None else {"frr": routing})
        try:
            _print("spd check", request(socket, body), as_json)
            return
        except NoDaemonError as absent:
            if socket is not None or configured or number is not None:
                raise
            absent.show()
            click.echo(
                "checking the rules without a configuration: bundles and addresses are not known",
                err=True,
            )
    from sluice.cli.local_check import check_files  # noqa: PLC0415 - imports most of the package

    found = check_files(config, list(configured), rules.get("files"), routing)
    _print("spd check", found, as_json)


def _read_frr(path: Path | None) -> list[dict[str, str]] | None:
    if path is None:
        return None
    if str(path) == "-":
        return [{"name": "standard input", "text": sys.stdin.read()}]
    paths = sorted(path.glob("*.conf")) if path.is_dir() else [path]
    if not paths:
        raise CommandFailedError(f"{path}: the directory has no *.conf file")
    return [_read(one) for one in paths]


@spd.command("diff", epilog=EPILOG)
@_FILES
@_CONFIGURED
@click.option(
    "--flows",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show at most N changed flows of each list (default 10).",
)
@click.option(
    "--commit",
    "number",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Instead of FILE: the rules right after this commit of `sluice spd log`.",
)
@common
def diff(
    *,
    files: tuple[Path, ...],
    configured: tuple[str, ...],
    flows: int | None,
    number: int | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Show what a commit of each FILE would change.

    Shows the changed rules, and the cached flows whose action would change.
    """
    if number is None:
        body = {"command": "spd diff"} | _rules(files, configured)
    elif files or configured:
        raise click.UsageError("give one of FILE..., --configured SPD, --commit NUMBER")
    else:
        body = {"command": "spd diff", "commit": number}
    if flows is not None:
        body["flows"] = flows
    _print("spd diff", request(socket, body), as_json)


@spd.command("commit", epilog=EPILOG)
@_FILES
@_CONFIGURED
@_MESSAGE
@common
def commit(
    files: tuple[Path, ...],
    configured: tuple[str, ...],
    message: str | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Put the rules in each FILE into force.

    The rules apply to the SPD that FILE names, also to running flows. The old rules apply to no
    packet that arrives after the command has returned. The new rules stay in force over restarts,
    even if the file that the configuration names has other rules.
    """
    _change("commit", socket, as_json, message, **_rules(files, configured))


def _change(
    change: str, socket: Path | None, as_json: bool, message: str | None, **fields: Any
) -> None:
    """Requests a change of rules and prints the answer. All such requests have answers of the same
    form."""
    reason = {} if message is None else {"message": message}
    body = {"command": f"spd {change}"} | fields | reason
    _print("spd commit", _request_with_progress(socket, body), as_json)


def _request_with_progress(socket: Path | None, body: dict[str, Any]) -> Any:
    """Sends a request to change rules. Prints the progress of the change until the answer arrives.

    Raises CommandFailedError.
    """
    outcomes: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def send() -> None:
        try:
            outcomes.put((request(socket, body, CHANGE_TIMEOUT), None))
        except BaseException as error:
            outcomes.put((None, error))

    Thread(target=send, daemon=True).start()  # a daemon thread, so that Ctrl-C ends the command
    shown = ""
    while True:
        with suppress(Empty):
            answer, error = outcomes.get(timeout=PROGRESS_SECONDS)
            if error is not None:
                raise error
            return answer
        with suppress(CommandFailedError):
            found = request(socket, {"command": "spd progress"})
            text = "" if found is None else _progress_text(found)
            if text not in ("", shown):
                click.echo(text, err=True)
                shown = text


def _progress_text(progress: dict[str, Any]) -> str:
    if not progress["of"]:
        return str(progress["step"])
    return f"{progress['step']}: {progress['done']:,} of {progress['of']:,} rules"


_NAME = click.argument("name", metavar="SPD", shell_complete=SPDS)
_DIRECTION = click.argument("direction", metavar="LIST", type=click.Choice(["inbound", "outbound"]))
_RULE_NAME = click.argument("rule", metavar="RULE")


def _insertion_point(function: Callable[..., None]) -> Callable[..., None]:
    """Decorates a command with the options that name an insertion point in a list of rules.

    The command receives the insertion point as `point`.
    """

    @click.option("--first", is_flag=True, help="Put the rule in front of all others.")
    @click.option("--last", is_flag=True, help="Put the rule behind all others (default).")
    @click.option("--before", metavar="RULE", help="Put the rule in front of this one.")
    @click.option("--after", metavar="RULE", help="Put the rule behind this one.")
    @wraps(function)
    def with_point(
        *, first: bool, last: bool, before: str | None, after: str | None, **others: Any
    ) -> None:
        named = {"first": first, "last": last, "before": before, "after": after}
        given = {at: name for at, name in named.items() if name not in (None, False)}
        if len(given) > 1:
            raise click.UsageError("give one of --first, --last, --before RULE, --after RULE")
        at, name = next(iter(given.items()), ("last", True))
        point = {"at": at} if name is True else {"at": at, "next_to": name}
        function(point=point, **others)

    return with_point


@spd.command("add", epilog=EPILOG)
@_NAME
@_DIRECTION
@_RULE_NAME
@_insertion_point
@_MESSAGE
@common
def add(
    *,
    name: str,
    direction: str,
    rule: str,
    point: dict[str, str],
    message: str | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Add RULE to a list and commit the list.

    RULE is a mapping as in a file of rules, for example
    '{name: web, action: bypass, protocol: tcp, destination_ports: [80]}'.
    """
    fields = {"spd": name, "direction": direction, "rule": rule} | point
    _change("add", socket, as_json, message, **fields)


@spd.command("delete", epilog=EPILOG)
@_NAME
@_DIRECTION
@_RULE_NAME
@_MESSAGE
@common
def delete(
    *,
    name: str,
    direction: str,
    rule: str,
    message: str | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Delete the rule named RULE from a list and commit the list."""
    fields = {"spd": name, "direction": direction, "name": rule}
    _change("delete", socket, as_json, message, **fields)


@spd.command("move", epilog=EPILOG)
@_NAME
@_DIRECTION
@_RULE_NAME
@_insertion_point
@_MESSAGE
@common
def move(
    *,
    name: str,
    direction: str,
    rule: str,
    point: dict[str, str],
    message: str | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Move the rule named RULE to another place in its list and commit the list."""
    fields = {"spd": name, "direction": direction, "name": rule} | point
    _change("move", socket, as_json, message, **fields)


@spd.command("rollback", epilog=EPILOG)
@_NUMBER
@click.argument("spds", metavar="[SPD...]", nargs=-1, shell_complete=SPDS)
@_MESSAGE
@common
def rollback(
    number: int, spds: tuple[str, ...], message: str | None, socket: Path | None, as_json: bool
) -> None:
    """Commit the rules that were in force right after commit NUMBER of `sluice spd log`.

    Without SPD, all SPDs of that commit get their rules back. `sluice spd diff --commit NUMBER`
    shows what would change.
    """
    _change("rollback", socket, as_json, message, commit=number, spds=list(spds))


@spd.command("log", epilog=EPILOG)
@_SPD
@common
def show_log(spd: str | None, socket: Path | None, as_json: bool) -> None:
    """Show the last commits: number, time, user, and what changed. The newest is first."""
    body = {"command": "spd log"} | ({} if spd is None else {"spd": spd})
    _print("spd log", request(socket, body), as_json)


@spd.command("export", epilog=EPILOG)
@click.argument("name", metavar="SPD", shell_complete=SPDS)
@common
def export(name: str, socket: Path | None, as_json: bool) -> None:
    """Print the rules of SPD that are in force.

    The output is a file for `sluice spd commit`.
    """
    import yaml  # noqa: PLC0415 - slow to import; no other command needs it

    document = request(socket, {"command": "spd export", "spd": name})
    if as_json:
        click.echo(json.dumps(document, indent=2))
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False, default_flow_style=None), nl=False)


@click.group("flow-cache", epilog=EPILOG)
def flow_cache() -> None:
    """Turn flow caches on or off, clear or show them.

    The commands apply to the flow caches of one SPD, or of all SPDs.
    """


def _add_cache(name: str, text: str) -> None:
    @_SPD
    @common
    def command(spd: str | None, socket: Path | None, as_json: bool) -> None:
        body: dict[str, Any] = {"command": f"flow-cache {name}"}
        if name == "show":
            body = {"command": "show", "what": "flow-cache"}
        if spd is not None:
            body["spd"] = spd
        _print("flow-cache", request(socket, body), as_json)

    flow_cache.command(name, help=text, epilog=EPILOG)(command)


_add_cache("on", "Turn the caches on.\n\nThe controller installs flows again.")
_add_cache("off", "Turn the caches off.\n\nThe controller searches the rules for every packet.")
_add_cache(
    "clear", "Retire all flows.\n\nThe controller searches the rules for each flow's next packet."
)
_add_cache("show", "Show how full the caches are, and their epochs.")
