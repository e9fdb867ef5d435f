# SPDX-License-Identifier: Apache-2.0
"""Completes names of SPDs, SAs, interfaces and VRFs in the shell.

The running controller supplies the names. If none answers, the shell offers no completions and
prints no message.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sluice.cli.shared import CommandFailedError, request

Completer = Callable[[click.Context, click.Parameter, str], list[str]]


def _completer(what: str, names: Callable[[Any], list[str]]) -> Completer:
    def complete(context: click.Context, parameter: click.Parameter, typed: str) -> list[str]:
        socket = context.params.get("socket")
        try:
            found = request(Path(socket) if socket else None, {"command": "show", "what": what})
        except CommandFailedError:
            return []
        return [name for name in dict.fromkeys(names(found)) if name.startswith(typed)]

    return complete


SPDS = _completer("flow-cache", lambda data: [one["spd"] for one in data])
INTERFACES = _completer("interfaces", lambda data: [one["name"] for one in data])
SAS = _completer("sas", lambda data: [one["name"] for one in data])
BUNDLES = _completer("sas", lambda data: [one["bundle"] for one in data])
VRFS = _completer("status", lambda data: [one["name"] for one in data["vrfs"]])
