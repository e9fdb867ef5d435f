# SPDX-License-Identifier: Apache-2.0
"""Formats switch entries as text for logs. Pure."""

from __future__ import annotations

from enum import Enum

from sluice.model import Prefix, format_address, format_mac
from sluice.p4.flows import FlowSlot
from sluice.policy.model import FragmentClass
from sluice.state.flow_cache import FlowVerdict

_ADDRESS_SIZES = (4, 16)
_MAC_SIZE = 6


def text_of(value: object) -> str:
    """Formats a key or value of an entity, with addresses and prefixes in the usual notation."""
    if value is None:
        return "nothing"
    if isinstance(value, FlowSlot):
        return _flow(value)
    if isinstance(value, FlowVerdict):
        by = f"rule {value.rule_id}, epoch {value.epoch}"
        bundle = f" (bundle {value.bundle})" if value.bundle else ""
        return f"{value.action.name.lower()}{bundle} by {by}"
    if isinstance(value, Prefix):
        return str(value)
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None:
            return f"({', '.join(map(text_of, value))})"
        fields = (f"{name} {text_of(one)}" for name, one in zip(names, value, strict=True))
        return ", ".join(fields)
    return str(value)


def _bytes(value: bytes) -> str:
    if len(value) in _ADDRESS_SIZES:
        return format_address(value)
    return format_mac(value) if len(value) == _MAC_SIZE else value.hex()


def _flow(slot: FlowSlot) -> str:
    key = slot.key
    parts = [
        f"list {slot.list_id}, protocol {key.protocol},",
        f"{format_address(key.source)} port {key.source_port} to",
        f"{format_address(key.destination)} port {key.destination_port}",
    ]
    if key.fragment is not FragmentClass.WHOLE:
        parts.append(f"({key.fragment.name.lower()} fragments)")
    if key.is_local:
        parts.append("(this router's own)")
    if key.bundle:
        parts.append(f"(carried by bundle {key.bundle})")
    return " ".join(parts)
