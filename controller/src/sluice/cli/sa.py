# SPDX-License-Identifier: Apache-2.0
"""Defines the commands `sluice sa` about security associations; `main` adds them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from sluice.cli.complete import BUNDLES, SAS
from sluice.cli.shared import EPILOG, CommandFailedError, common, request

_BUNDLE = click.option(
    "--bundle", metavar="NAME", shell_complete=BUNDLES, help="Show the SAs of this bundle only."
)


class SpiType(click.ParamType[int]):
    """Parses an SPI, in decimal or with 0x."""

    name = "SPI"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the SPI as a number. Fails if the text is no valid SPI."""
        try:
            return int(str(value), 0)
        except ValueError:
            self.fail(f"{value!r} is not a number like 4097 or 0x1001", param, ctx)


@click.group(epilog=EPILOG)
def sa() -> None:
    """Add, rekey, delete and list security associations.

    Keys are read from files with mode 0600. No command takes a key as an argument or shows a key.
    """


def _print(what: str, data: Any, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(data, indent=2))
    else:
        from sluice.cli import tables  # noqa: PLC0415 - slow to import; only tables need it

        tables.show(what, data)


def list_sas(bundle: str | None, socket: Path | None, as_json: bool) -> None:
    """Prints all SAs, or those of a bundle."""
    body = {"command": "show", "what": "sas"} | ({} if bundle is None else {"bundle": bundle})
    _print("sas", request(socket, body), as_json)


@sa.command("list", epilog=EPILOG)
@_BUNDLE
@common
def list_command(bundle: str | None, socket: Path | None, as_json: bool) -> None:
    """List SAs with their state, packets and bytes."""
    list_sas(bundle, socket, as_json)


@sa.command("add", epilog=EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@common
def add(file: Path, socket: Path | None, as_json: bool) -> None:
    """Add the SAs in FILE.

    FILE has SAs under `security_associations`, in the format of the configuration. The SAs persist
    over restarts until `sluice sa del`. An outbound SA replaces an earlier outbound SA of its
    bundle. If one SA is refused, none is added.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandFailedError(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandFailedError(f"{file}: is not UTF-8 text") from error
    directory = str(file.absolute().parent)
    body = {"command": "sa add", "name": str(file), "text": text, "directory": directory}
    _print("sas", request(socket, body), as_json)


@sa.command("del", epilog=EPILOG)
@click.argument("name", shell_complete=SAS)
@click.option("--spi", type=SpiType(), help="Delete only the SA with this SPI.")
@common
def delete(name: str, spi: int | None, socket: Path | None, as_json: bool) -> None:
    """Delete the SA NAME.

    The SA is deleted from the switch at once, then from its engine. From then on, traffic that only
    this SA protects is dropped. To delete an SA of the configuration, remove it from the
    configuration, then reload. An SA that a rekey has replaced can be deleted with --spi.
    """
    body: dict[str, Any] = {"command": "sa del", "name": name}
    if spi is not None:
        body["spi"] = spi
    _print("sa del", request(socket, body), as_json)


@sa.command("rekey", epilog=EPILOG)
@click.argument("name", shell_complete=SAS)
@click.option("--spi", type=SpiType(), required=True, help="The successor's SPI.")
@click.option("--key-file", type=click.Path(path_type=Path), help="File with the successor's key.")
@click.option(
    "--integrity-key-file",
    type=click.Path(path_type=Path),
    help="File with the successor's integrity key, if its algorithm has one.",
)
@common
def rekey(
    *,
    name: str,
    spi: int,
    key_file: Path | None,
    integrity_key_file: Path | None,
    socket: Path | None,
    as_json: bool,
) -> None:
    """Give the SA NAME a successor.

    The successor has another SPI and key, and takes over without interrupting traffic.

    Rekey the inbound SA first, then the peer's outbound SA with the same SPI and key. The old
    inbound SA stays until its successor has carried packets for a while. The old outbound SA is
    deleted once the switch uses its successor.
    """
    body: dict[str, Any] = {"command": "sa rekey", "name": name, "spi": spi}
    for key, path in (("key_file", key_file), ("integrity_key_file", integrity_key_file)):
        if path is not None:
            body[key] = os.path.abspath(path)
    _print("sas", request(socket, body), as_json)
