# SPDX-License-Identifier: Apache-2.0
"""Runs `sluice spd check` without a controller, with or without a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sluice.cli.shared import CommandFailedError
from sluice.config import Config, ConfigError, load_config
from sluice.frr import Routing, read_frr
from sluice.policy.check import Checker
from sluice.policy.spdfile import SpdText

Files = list[dict[str, str]]


def check_files(
    path: Path | None, configured: list[str], files: Files | None, frr: Files | None
) -> list[dict[str, Any]]:
    """Returns the report of `spd check`.

    Raises CommandFailedError with every problem of every file.
    """
    problems: list[str] = []
    config = None
    if path is not None:
        try:
            config = load_config(path)
        except ConfigError as error:
            problems += error.problems
    routing = None if frr is None else Routing()
    for file in frr or ():
        if routing is not None:
            read_frr(file["text"], file["name"], routing)
    checker = Checker(config, routing=routing)
    texts: dict[str, SpdText] = {}
    try:
        texts = checker.read((file["name"], file["text"]) for file in files or ())
    except ConfigError as error:
        problems += error.problems
    if config is not None:
        texts |= _configured(config, configured, problems)
    if problems:
        raise CommandFailedError(str(ConfigError([*dict.fromkeys(problems)])))
    return checker.report(texts)


def _configured(config: Config, names: list[str], problems: list[str]) -> dict[str, SpdText]:
    known = {spd.name: SpdText(spd.name, spd.rules) for spd in config.policy.spds}
    problems += [f"there is no SPD {name!r}; this router has: {', '.join(known) or 'none'}"
                 for name in names if name not in known]  # fmt: skip
    return {name: known[name] for name in names if name in known}
