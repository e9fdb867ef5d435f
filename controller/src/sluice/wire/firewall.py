# SPDX-License-Identifier: Apache-2.0
"""Finds the rules of nftables that forwarded packets pass, in the JSON of `nft -j list ruleset`.

Packets to and from this host are not forwarded: they pass other chains, or stay with the kernel. So
their rules do not matter. Rules of iptables-nft are rules of nftables. Pure (libnftables-json(5)).
"""

from __future__ import annotations

import json
from typing import Any

NETWORK_FAMILIES = frozenset({"ip", "ip6", "inet"})
DEVICE_FAMILIES = frozenset({"netdev", "inet"})
NETWORK_HOOKS = frozenset({"prerouting", "forward", "postrouting"})
DEVICE_HOOKS = frozenset({"ingress", "egress"})


def forwarding_chains(listing: str) -> list[str]:
    """Returns the chains that may drop or change forwarded packets, as text.

    A chain without rules whose policy is `accept` is not among them. Raises ValueError if the
    listing cannot be read.
    """
    document = json.loads(listing)
    if not isinstance(document, dict) or not isinstance(document.get("nftables"), list):
        raise ValueError("the listing has no `nftables`")
    objects = [one for one in document["nftables"] if isinstance(one, dict)]
    used = {_chain_of(one["rule"], "chain") for one in objects if "rule" in one}
    found = []
    for chain in (one["chain"] for one in objects if "chain" in one):
        if not _sees_forwarded(chain):
            continue
        family, table, name = _chain_of(chain, "name")
        text = f"nftables chain {family} {table} {name} (hook {chain['hook']})"
        if _chain_of(chain, "name") in used:
            found.append(f"{text}: has rules")
        elif chain.get("policy", "accept") != "accept":
            found.append(f"{text}: has policy {chain['policy']}")
    return found


def _sees_forwarded(chain: dict[str, Any]) -> bool:
    hook, family = chain.get("hook"), chain.get("family")
    if family in NETWORK_FAMILIES and hook in NETWORK_HOOKS:
        return True
    return family in DEVICE_FAMILIES and hook in DEVICE_HOOKS


def _chain_of(found: dict[str, Any], key: str) -> tuple[str, str, str]:
    return str(found.get("family")), str(found.get("table")), str(found.get(key))
