# SPDX-License-Identifier: Apache-2.0
"""Defines the command `sluice show flows`; `main` adds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sluice.cli.complete import BUNDLES, SPDS
from sluice.cli.shared import EPILOG, common, full_answer, print_view, view_request


@click.command("flows", epilog=EPILOG)
@click.argument("spd", required=False, shell_complete=SPDS)
@click.option(
    "--list", type=click.Choice(["inbound", "outbound"]), help="Show only flows of this list."
)
@click.option("--source", metavar="PREFIX", help="Show only flows from this prefix or address.")
@click.option("--destination", metavar="PREFIX", help="Show only flows to this prefix or address.")
@click.option(
    "--host", metavar="ADDRESS", help="Show only flows from or to this address or prefix."
)
@click.option(
    "--protocol",
    metavar="NAME",
    help="Show only flows of this IP protocol: tcp, udp, icmp ... or a number.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Show only flows from or to this port.",
)
@click.option(
    "--action",
    type=click.Choice(["bypass", "discard", "protect"]),
    help="Show only flows with this action.",
)
@click.option("--rule", metavar="NAME", help="Show only flows that this rule decides.")
@click.option(
    "--bundle",
    metavar="NAME",
    shell_complete=BUNDLES,
    help="Show only flows that this bundle protects or decrypted.",
)
@click.option("--stale", is_flag=True, default=None, help="Show only retired flows.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show at most N flows (default 1000).",
)
@click.option(
    "--top",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Show the N flows with most packets. With --by: the N largest sums (default 20).",
)
@click.option(
    "--by",
    type=click.Choice(["source", "destination", "rule", "protocol"]),
    help="Show the largest sums of flows, packets and bytes, by this field.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.1, 30),
    metavar="SECONDS",
    help="With --top or --by: measure for SECONDS, and sort by packets a second.",
)
@common
def show_flows(*, socket: Path | None, as_json: bool, **filters: Any) -> None:
    """Show the flows in the switch's flow cache.

    Shows the flows of one SPD, or of all SPDs. With several filters, a flow must pass all of them.
    A line below the table names the lists whose flows are not cached, and why.

    sluice show flows corp --host 10.1.0.10 --protocol udp

    sluice show flows --top 10 --rate 2
    """
    ranked = filters["top"] is not None or filters["by"] is not None
    if filters["limit"] is not None and ranked:
        raise click.UsageError("give --limit or one of --top, --by; --top is also a limit")
    if filters["rate"] is not None and not ranked:
        raise click.UsageError("--rate needs --top or --by")
    found = full_answer(socket, view_request("flows", filters))
    data = {"flows": found.get("data"), "uncached": found.get("uncached", [])}
    print_view("flows" if filters["by"] is None else "flows --by", data, as_json=as_json)
