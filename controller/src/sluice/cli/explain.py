# SPDX-License-Identifier: Apache-2.0
"""Defines the command `sluice explain`; `main` adds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sluice.cli.complete import INTERFACES
from sluice.cli.pcap_file import PcapError, read_frame
from sluice.cli.shared import EPILOG, CommandFailedError, common, request


@click.command(epilog=EPILOG)
@click.argument("packet", metavar="[PACKET]", required=False)
@click.option(
    "--hex", "as_hex", metavar="FRAME", help="Instead of PACKET: an Ethernet frame in hexadecimal."
)
@click.option(
    "--pcap",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Instead of PACKET: a frame of this pcap file.",
)
@click.option(
    "--number",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of the frame in the pcap file (default 1).",
)
@click.option(
    "--in",
    "interface",
    metavar="IFACE",
    shell_complete=INTERFACES,
    help="Interface by which the frame arrives, for --hex and --pcap.",
)
@common
def explain(
    *,
    packet: str | None,
    as_hex: str | None,
    pcap: Path | None,
    number: int,
    interface: str | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Tell what the router does with a packet, and why.

    PACKET is a description, such as 'udp 10.1.0.10:5000 > 10.2.0.9:7000 in eth1'. Without `in`
    it is a packet that this router sends. Further words: `vrf NAME`, `type TYPE/CODE` (ICMP), `type
    TYPE` (mobility), `ttl N`, `label N` (IPv6).

    The answer has the rules that match, the route and the state of the flow cache. It comes from
    the controller's state, and from dry runs in the switch, if the switch supports them. Exit code
    1 if the two disagree.
    """
    if sum(given is not None for given in (packet, as_hex, pcap)) != 1:
        raise click.UsageError("give one of PACKET, --hex FRAME, --pcap FILE")
    if (packet is None) != (interface is not None):
        raise click.UsageError("--in IFACE goes with --hex and --pcap; PACKET has `in IFACE`")
    body: dict[str, Any] = {"command": "explain"}
    if packet is not None:
        body["text"] = packet
    else:
        body |= {"frame": _frame(as_hex, pcap, number), "in": interface}
    answer = request(socket, body)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        from sluice.cli import tables  # noqa: PLC0415 - `sluice run` shows none, and has no time

        tables.show("explain", answer)
    if answer["disagreements"]:
        raise click.exceptions.Exit(1)


def _frame(as_hex: str | None, pcap: Path | None, number: int) -> str:
    if pcap is None:
        return as_hex or ""
    try:
        return read_frame(pcap, number).hex()
    except PcapError as error:
        raise CommandFailedError(str(error)) from error
