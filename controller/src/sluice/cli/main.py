# SPDX-License-Identifier: Apache-2.0
"""Defines the commands, which print tables for people, or the API's JSON with --json."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from sluice.cli import route_table
from sluice.cli.complete import INTERFACES, SPDS, VRFS
from sluice.cli.explain import explain
from sluice.cli.flows import show_flows
from sluice.cli.policy import flow_cache, spd
from sluice.cli.printable import printable
from sluice.cli.sa import list_command, sa
from sluice.cli.shared import (
    EPILOG,
    FAILED,
    CommandFailedError,
    common,
    pages,
    request,
    show_view,
)
from sluice.cli.up import down, up


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, _, body: _say_version(context) if body else None,
    help="Show the version, the commit and the pipeline's digest, and exit.",
)
def cli() -> None:
    """Sluice: FRR's routes and IPsec policy in a P4 switch."""


def _say_version(context: click.Context) -> None:
    from sluice.about import version  # noqa: PLC0415 - other commands do not need it

    click.echo(f"sluice {version()}")
    context.exit()


@cli.command(epilog=EPILOG)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Validate the configuration and exit.")
@click.option(
    "--configured-policy",
    is_flag=True,
    help="Start every SPD with its configured rules, not with the rules committed last.",
)
def run(config: Path, check: bool, configured_policy: bool) -> None:
    """Run the controller of one router.

    The YAML file CONFIG describes the router. Prints `sluice: ready` on standard error once the
    switch is programmed with the interfaces.
    """
    if check:
        _check(config)
        return
    from sluice.app import run as run_daemon  # noqa: PLC0415 - `sluice show` does not need it

    sys.exit(run_daemon(config, configured_policy=configured_policy))


def _check(config: Path) -> None:
    from sluice.config import ConfigError, load_config  # noqa: PLC0415 - as above

    try:
        loaded = load_config(config)
    except ConfigError as error:
        raise CommandFailedError(str(error)) from error
    number = len(loaded.interfaces)
    counted = "1 interface" if number == 1 else f"{number} interfaces"
    click.echo(f"{config}: router {loaded.router}, {counted}: fine")


# --- show ----------------------------------------------------------------------------------------


@cli.group(epilog=EPILOG)
def show() -> None:
    """Show what the controller knows and what the switch holds."""


def _add_show(what: str, text: str) -> None:
    @common
    def command(socket: Path | None, as_json: bool) -> None:
        show_view(what, socket, as_json)

    show.command(what, help=text, epilog=EPILOG)(command)


_add_show("nexthops", "Next hops and next-hop groups in use.")
_add_show("neighbors", "Neighbours on the router's links.")
_add_show("punts", "Packets sent to the CPU, by reason, and how they were handled.")
_add_show("counters", "Drops by reason in the switch; the controller's own counters.")


@show.command("status", epilog=EPILOG)
@click.option("--check", is_flag=True, help="Print problems only; exit with 1 if there are any.")
@common
def show_status(check: bool, socket: Path | None, as_json: bool) -> None:
    """Show the controller's state and all problems.

    The state tells whether the switch is connected and holds the desired entries.
    """
    if not check:
        show_view("status", socket, as_json)
        return
    problems = request(socket, {"command": "show", "what": "status"})["problems"]
    if as_json:
        click.echo(json.dumps(problems, indent=2))
    else:
        for problem in problems:
            click.echo(printable(problem, lines=True))
    if problems:
        sys.exit(FAILED)


_VRF = click.option("--vrf", metavar="NAME", shell_complete=VRFS, help="Show only this VRF.")


@show.command("interfaces", epilog=EPILOG)
@click.argument("name", required=False, shell_complete=INTERFACES)
@_VRF
@common
def show_interfaces(name: str | None, vrf: str | None, socket: Path | None, as_json: bool) -> None:
    """Show layer-3 interfaces with their counters.

    With NAME, show only this interface, with all details.
    """
    table = None if name is None else "interface"
    show_view("interfaces", socket, as_json, table, name=name, vrf=vrf)


@show.command("route", epilog=EPILOG)
@click.argument("address")
@click.option(
    "--vrf",
    metavar="NAME",
    shell_complete=VRFS,
    help="Look up in this VRF; default: the default VRF.",
)
@click.option("--source", metavar="ADDRESS", help="The flow's source address.")
@click.option(
    "--protocol", metavar="NAME", help="The flow's IP protocol: tcp, udp, icmp ... or a number."
)
@click.option(
    "--ports",
    metavar="SOURCE:DESTINATION",
    help="The flow's source and destination port, if its protocol has ports.",
)
@click.option(
    "--flow-label", type=click.IntRange(0, (1 << 20) - 1), help="The flow label of an IPv6 flow."
)
@common
def show_route(
    *,
    address: str,
    vrf: str | None,
    source: str | None,
    protocol: str | None,
    ports: str | None,
    flow_label: int | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Look up ADDRESS as the switch does.

    Shows the route, the next hops, their neighbours and ports. Longer prefixes that are not in the
    switch are shown with the reason. For a flow, the switch reports which next hop of a group the
    flow's packets take:

    sluice show route 192.0.2.1 --source 10.0.0.1 --protocol tcp --ports 40000:443
    """
    flow = _flow(source, protocol, ports, flow_label)
    show_view("route", socket, as_json, address=address, vrf=vrf, flow=flow)


def _flow(
    source: str | None, protocol: str | None, ports: str | None, label: int | None
) -> dict[str, Any] | None:
    """Returns the flow that these options describe, or None if no option is given."""
    if source is None and protocol is None and ports is None and label is None:
        return None
    if source is None or protocol is None:
        raise click.UsageError(
            "a flow needs --source and --protocol, and --ports if its protocol has ports"
        )
    from sluice.policy.model import PROTOCOLS  # noqa: PLC0415 - other commands do not need it

    number = PROTOCOLS.get(protocol)
    if number is None and not protocol.isdecimal():
        raise click.UsageError(f"--protocol is a number or one of {', '.join(PROTOCOLS)}")
    flow: dict[str, Any] = {"source": source}
    flow["protocol"] = int(protocol) if number is None else number
    if ports is not None:
        pair = ports.split(":")
        if len(pair) != 2 or not all(port.isdecimal() for port in pair):
            raise click.UsageError("--ports is SOURCE:DESTINATION, like 40000:443")
        flow["ports"] = [int(port) for port in pair]
    if label is not None:
        flow["flow_label"] = label
    return flow


@show.command("routes", epilog=EPILOG)
@click.argument("prefix", required=False)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Show at most N routes.")
@click.option("--after", metavar="PREFIX", help="Begin after this prefix.")
@click.option(
    "--after-vrf", type=click.IntRange(min=0), metavar="VRF", help="The VRF of --after; default: 0."
)
@_VRF
@click.option(
    "--protocol", metavar="NAME", help="Show only this protocol's routes: bgp, ospf, static ..."
)
@common
def show_routes(
    *,
    prefix: str | None,
    vrf: str | None,
    protocol: str | None,
    limit: int | None,
    after: str | None,
    after_vrf: int | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Show the switch's routes, or one PREFIX.

    The routes are sorted by VRF, then IPv4 before IPv6, then prefix, and printed as they arrive.
    """
    if after_vrf is not None and after is None:
        raise click.UsageError("--after-vrf needs --after PREFIX")
    filters = {"prefix": prefix, "after": after, "after_vrf": after_vrf}
    filters |= {"vrf": vrf, "protocol": protocol}
    body: dict[str, Any] = {"command": "show", "what": "routes"}
    body |= {name: value for name, value in filters.items() if value is not None}
    found = pages(socket, body, limit)
    if as_json:
        _print_pages(found)
    else:
        route_table.show(found)


def _print_pages(found: Iterable[list[Any]]) -> None:
    """Prints a JSON list page by page, one row per line."""
    before = "[\n"
    for page in filter(None, found):
        click.echo(before + ",\n".join(f"  {json.dumps(row)}" for row in page), nl=False)
        before = ",\n"
    click.echo("[]" if before == "[\n" else "\n]")


@show.command("spd", epilog=EPILOG)
@click.argument("spd", required=False, shell_complete=SPDS)
@click.option("--generated", is_flag=True, help="Show each generated rule, too.")
@common
def show_spd(spd: str | None, generated: bool, socket: Path | None, as_json: bool) -> None:
    """Show rules with their packet counts.

    Shows the rules of one SPD, or of all SPDs, in order. Rules are numbered as in their file;
    generated rules come first and have no number.
    """
    show_view("spd", socket, as_json, "spd --generated" if generated else None, spd=spd)


@cli.command(epilog=EPILOG)
@common
def metrics(socket: Path | None, as_json: bool) -> None:
    """Print all counts in Prometheus' text format."""
    show_view("metrics", socket, as_json)


@cli.group(epilog=EPILOG)
def clear() -> None:
    """Set displayed counters to 0."""


@clear.command("counters", epilog=EPILOG)
@common
def clear_counters(socket: Path | None, as_json: bool) -> None:
    """Set the counters of `show counters`, `show punts` and `show interfaces` to 0.

    Metrics and the hits of rules keep their values.
    """
    done = request(socket, {"command": "clear counters"})
    if as_json:
        click.echo(json.dumps(done, indent=2))


@cli.command(epilog=EPILOG)
@common
def reload(socket: Path | None, as_json: bool) -> None:
    """Reload the configuration, as SIGHUP does.

    If the configuration is invalid, nothing changes, and the configuration in force stays. Prints
    the keys that have changed.
    """
    changed = request(socket, {"command": "reload"})["changed"]
    if as_json:
        click.echo(json.dumps(changed, indent=2))
    else:
        click.echo("\n".join(map(printable, changed)) or "nothing has changed")


cli.add_command(spd)
cli.add_command(flow_cache)
cli.add_command(sa)
cli.add_command(explain)
cli.add_command(up)
cli.add_command(down)
show.add_command(show_flows)
show.add_command(list_command, "sas")


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
    """Runs the command line. Exits with one of the exit codes."""
    try:
        cli.main(prog_name="sluice", standalone_mode=True)
    except BrokenPipeError:  # the reader has ended, as in `sluice show routes | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
