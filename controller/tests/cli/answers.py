# SPDX-License-Identifier: Apache-2.0
"""Holds an example answer for each view, and the text that the command must print for it."""

from __future__ import annotations

from typing import Any

LEG = {
    "interface": "eth1",
    "gateway": "10.0.1.9",
    "mac": "02:00:00:00:09:04",
    "up": True,
    "silent": False,
}
COUNT = {"packets": 1234, "bytes": 99}
ROUTE = {
    "prefix": "20.0.0.0/8",
    "vrf": 0,
    "vrf_name": "default",
    "protocol": "bgp",
    "action": "group",
    "nexthops": [LEG | {"weight": 3}, LEG | {"weight": 1}],
    "dead_nexthops": [
        LEG | {"gateway": "10.0.1.10", "mac": None, "silent": True},
        LEG | {"gateway": "10.0.1.11", "mac": None, "silent": True, "up": False},
    ],
    "installed": True,
    "unrouted": None,
    "error": None,
}
SA = {
    "name": "to-branch",
    "bundle": "branch",
    "direction": "outbound",
    "spi": 0x1001,
    "mode": "tunnel",
    "algorithm": "aes-128-gcm",
    "origin": "configuration",
    "local": "10.0.1.1",
    "remote": "10.0.1.9",
    "traffic": None,
    "fragmentation": "before",
    "soft": {},
    "hard": {"seconds": 86400},
    "state": "in use",
    "why": None,
    "engine": 1,
    "number": 3,
    "age": "soft",
    "sequence": 1234,
    "packets": 1234,
    "bytes": 99,
    "drops": {"too_long": 7},
    "path_mtu": {"bytes": 1400, "interface": "eth2", "told_by": None, "forgotten_in": None},
}
ANSWERS: dict[str, Any] = {
    "status": {
        "router": "r1",
        "role": "standby",
        "synced": False,
        "switch": {
            "target": "bmv2",
            "address": "unix:/run/sluice/r1-p4rt.sock",
            "transport": "unix socket",
            "connected": False,
            "arbitration": "another controller is primary",
            "last_error": "UNAVAILABLE: gone",
        },
        "fpm": {
            "peer": None,
            "refused": 3,
            "routes": 3,
            "stale_routes": 2,
            "kept_routes": 3,
            "settled": False,
            "not_installed": {"link-local: never forwarded (RFC 3927)": 16},
            "waiting_for_objects": {"42": 7},
        },
        "reconciler": {
            "pending": 1,
            "orphans": 4,
            "failed": 1,
            "failures": [{"what": "route 20.0.0.0/8 vrf 0", "error": "RESOURCE_EXHAUSTED"}],
        },
        "vrfs": [
            {"name": "default", "table": 254, "device": None, "namespace": None},
            {"name": "red", "table": 100, "device": "red", "namespace": None},
            {"name": "blue", "table": 200, "device": None, "namespace": None},
            {
                "name": "green",
                "table": 300,
                "device": None,
                "namespace": "green",
                "fpm": "127.0.0.1:4711",
            },
        ],
        "ready": False,
        "uptime": 93784.2,
        "progress": {
            "phase": "reading what the switch holds",
            "routes_read_back": 123456,
            "routes_per_second": 41000,
        },
        "loop": {
            "loop": {"longest_stall": 0.0317, "last_minute": 0.0041},
            "routes": {"longest_stall": 0.0212, "last_minute": 0.0},
        },
        "auditor": {
            "policy": {
                "rounds": 3,
                "entries": 1234,
                "seconds": 0.5,
                "seconds_ago": 2.0,
                "repaired": {"outbound_flow": 1},
                "last_repairs": ["outbound_flow X: found Y, put Z"],
                "problem": None,
            },
            "routes": {
                "rounds": 0,
                "entries": 0,
                "seconds": 0.0,
                "seconds_ago": None,
                "repaired": {},
                "last_repairs": [],
                "problem": None,
            },
        },
        "problems": ["interface eth1 is down"],
        "remarks": {"routes of kernel table 77, which no VRF has": 5},
    },
    "interfaces": [
        {
            "name": "eth1",
            "port": 1,
            "vlan": 10,
            "vrf": "default",
            "up": True,
            "device": "port1",
            "carrier": False,
            "switch_port": "up",
            "mac": "02:00:00:00:01:01",
            "virtual_macs": ["00:00:5e:00:01:05"],
            "mtu": 1500,
            "addresses": ["10.0.1.1/24"],
            "received": COUNT,
            "sent": None,
        }
    ],
    "routes": [
        ROUTE,
        {
            "prefix": "21.0.0.0/8",
            "vrf": 0,
            "protocol": "static",
            "action": "blackhole",
            "nexthops": [],
            "dead_nexthops": [],
            "installed": False,
            "unrouted": None,
            "error": "RESOURCE_EXHAUSTED",
        },
        {
            "prefix": "169.254.7.0/24",
            "vrf": 0,
            "protocol": "bgp",
            "action": "group",
            "nexthops": [LEG | {"weight": 3}],
            "dead_nexthops": [],
            "installed": False,
            "unrouted": "link-local: never forwarded (RFC 3927)",
            "error": None,
        },
    ],
    "route": {
        "address": "20.1.2.3",
        "vrf": "default",
        "own": False,
        "route": ROUTE | {"id": 5},
        "legs": [
            LEG
            | {"share": 0.75, "nexthop": 7, "installed": True, "error": None}
            | {"neighbor": "reachable", "port": 1, "vlan": 10, "switch_port": "up", "taken": None},
            LEG
            | {"share": 0.25, "nexthop": 8, "installed": False, "error": "RESOURCE_EXHAUSTED"}
            | {"neighbor": None, "port": 2, "vlan": 0, "switch_port": None, "taken": None},
        ],
        "flow": None,
        "not_installed": [ROUTE | {"prefix": "20.1.0.0/16"}],
    },
    "clear counters": {},
    "reload": {"changed": ["interfaces.eth1.mtu"]},
    "nexthops": {
        "nexthops": [LEG | {"id": 1, "used_by": 2, "sent": COUNT}],
        "groups": [{"id": 1, "used_by": 2, "members": [LEG | {"weight": 2}]}],
    },
    "neighbors": [LEG | {"address": "10.0.1.9", "state": "reachable", "age": 1.5, "nexthop": 1}],
    "punts": {
        "reasons": {
            "ARP": {
                "to_cpu": 5,
                "metered_away": None,
                "queue_full": 0,
                "handled": 5,
                "rate": 1000,
            }
        },
        "waiting": 0,
        "held": 1,
        "results": {"icmp sent: NO_ROUTE": 3},
        "held_packets": {"held": 1},
    },
    "counters": {
        "switch_drops": {"MARTIAN": COUNT, "NO_INTERFACE": {"packets": 0, "bytes": 0}},
        "controller": {"fpm": {"frames": 7}},
    },
    "metrics": "sluice_synced 1\n",
}
EXPECTED = {
    "status": [
        "r1, up 1 d 2 h",
        "interface eth1 is down",
        "no",
        "r1-p4rt.sock (unix socket)",
        "3 connections refused",
        "UNAVAILABLE: gone",
        "20.0.0.0/8",
        "kernel table 77",
        "object 42",
        "VRF device red",
        "table 200, shares the host stack",
        "network namespace green, FPM peer 127.0.0.1:4711",
        "reading what the switch holds: 123,456 routes so far; 41,000 routes a second come in (not",
        "4 ms in the last minute, 32 ms since the start (routes: 21 ms)",
    ],
    "interfaces": ["eth1", "1.10", "1,234", "10.0.1.1/24"],
    "routes": [
        "via 10.0.1.9 dev eth1 weight 3",
        "via 10.0.1.10 dev eth1 (no answer)",
        "via 10.0.1.11 dev eth1 (down)",
        "blackhole",
        "RESOURCE_EXHAUSTED",
        "not installed: link-local: never forwarded (RFC 3927)",
    ],
    "nexthops": ["02:00:00:00:09:04", "weight 2"],
    "neighbors": ["reachable"],
    "punts": ["ARP", "1,000", "icmp sent: NO_ROUTE", "1 for a neighbour"],
    "counters": ["MARTIAN", "frames"],
}


RULE_TABLES = {
    "mode": "cache+rules",
    "chosen": "cache+rules",
    "why": "the first 4 of 5 rules in the tables",
    "rules": 4,
    "of": 5,
    "is_complete": False,
    "entries": {"ipv4": 1234, "ipv6": 17},
    "room": {"ipv4": 65536, "ipv6": 65536},
}
FLOW_CACHE = {
    "spd": "corp",
    "direction": "outbound",
    "cache": True,
    "flows": 12,
    "stale_flows": 3,
    "capacity": 65536,
    "idle_timeout": 60.0,
    "epoch": 4,
    "generation": 9,
    "mode": "cache+rules",
    "rule_tables": RULE_TABLES,
}
FLOW = {
    "spd": "corp",
    "direction": "inbound",
    "source": "2001:db8::1",
    "source_port": 40000,
    "destination": "10.0.0.1",
    "destination_port": None,
    "protocol": 6,
    "icmp": None,
    "mobility_type": None,
    "action": "protect",
    "bundle": "branch",
    "rule": "web",
    "stale": False,
    "packets": 77,
    "bytes": 7700,
    "later_fragments": True,
    "local": True,
    "carried_by": "hub",
}
UNCACHED = [
    {"spd": "corp", "direction": "inbound", "why": "the flow cache is off"},
    {"spd": "corp", "direction": "outbound", "why": "the flow cache is off"},
    *(
        {"spd": "edge", "direction": f"list {number}", "why": "all rules are in the rule tables"}
        for number in range(6)
    ),
]
ANSWERS |= {
    "spd": [
        FLOW_CACHE
        | {
            "rules": [
                {
                    "position": None,
                    "name": "nd-out-v6",
                    "text": "bypass icmpv6 any -> any",
                    "generated": True,
                    "hits": 40,
                    "searched": 1,
                },
                {
                    "position": None,
                    "name": "ike-out-v4",
                    "text": "bypass udp any -> any sport 500",
                    "generated": True,
                    "hits": 2,
                    "searched": 1,
                },
                {
                    "position": 1,
                    "generated": False,
                    "name": "web",
                    "text": "protect(branch) tcp any -> any dport 80",
                    "hits": 1234567,
                    "searched": 2,
                },
            ],
            "final_discard": {"hits": None, "searched": 8},
        }
    ],
    "flows": {"flows": [FLOW], "uncached": UNCACHED},
    "flows --by": {
        "flows": [
            {
                "source": "2001:db8::1",
                "flows": 3,
                "packets": 1200,
                "bytes": 3400,
                "packets_per_second": 12.5,
                "bytes_per_second": 1250.0,
            }
        ],
        "uncached": UNCACHED,
    },
    "flow-cache": [FLOW_CACHE],
    "sas": [
        SA,
        SA
        | {
            "name": "from-branch",
            "direction": "inbound",
            "remote": None,
            "state": "rekey needed",
            "why": "its key has encrypted on engine 1, which does not answer",
            "engine": None,
            "age": None,
            "packets": None,
            "bytes": None,
            "drops": {},
            "path_mtu": None,
        },
        SA
        | {
            "name": "ten-to-nine",
            "traffic": "10.1.0.10 > 10.2.0.9",
            "age": "fresh",
            "drops": {},
            "path_mtu": None,
        },
    ],
    "sa del": [SA],
    "spd check": [
        {
            "spd": "corp",
            "rules": {"inbound": 1, "outbound": 2},
            "warnings": ["no BGP"],
            "sessions_unchecked": "give FRR's configuration with --frr",
            "fragments": [
                {
                    "direction": "outbound",
                    "families": ["IPv4", "IPv6"],
                    "served_by": "either",
                    "rules": ["web", "dns", "site", "rest", "(final)"],
                    "because": ["web"],
                }
            ],
            "fragments_per_second": 2000,
            "rule_tables": {"outbound": RULE_TABLES},
        }
    ],
    "spd diff": [
        {
            "spd": "corp",
            "lists": {
                "inbound": [],
                "outbound": [
                    {
                        "change": "changed",
                        "name": "web",
                        "position_before": 1,
                        "position_after": 2,
                        "before": "bypass any -> any",
                        "after": "discard any -> any",
                    }
                ],
            },
            "flows": {
                "outbound": {
                    "live": 2000,
                    "changed": 12,
                    "rule_tables": RULE_TABLES | {"mode": "auto"},
                    "first": [
                        FLOW | {"after": None},
                        FLOW | {"after": {"action": "discard", "bundle": None, "rule": "new"}},
                    ],
                }
            },
        }
    ],
    "spd export": {"spd": "corp", "outbound": [{"name": "web", "action": "bypass"}]},
    "spd commit": {
        "spds": ["corp"],
        "changed": [
            {
                "spd": "corp",
                "direction": "outbound",
                "epoch": 4,
                "generation": 9,
                "rules": 5,
                "rule_tables": RULE_TABLES
                | {"mode": "auto", "why": "all 5 rules in the tables", "is_complete": True},
            }
        ],
        "warnings": ["no BGP"],
        "unchecked": ["guest"],
        "seconds": 0.0042,
    },
    "explain": {
        "packet": {
            "source": "10.1.0.10",
            "destination": "10.2.0.9",
            "protocol": 17,
            "source_port": 5000,
            "destination_port": 7000,
            "icmp": None,
            "mobility_type": None,
            "fragment": "whole",
            "own": False,
            "bytes": 42,
        },
        "interface": {"name": "eth1", "port": 1, "vlan": 7, "vrf": "red", "spd": None},
        "inbound": None,
        "route": {
            "address": "10.2.0.9",
            "vrf": "red",
            "own": False,
            "route": ROUTE,
            "legs": [
                LEG | {"share": 0.75, "nexthop": 3, "taken": True},
                LEG | {"share": 0.25, "nexthop": 4, "taken": False},
            ],
            "flow": None,
            "not_installed": [],
        },
        "outbound": [
            {
                "spd": "corp",
                "direction": "outbound",
                "epoch": 4,
                "generation": 9,
                "matches": [
                    {"position": None, "name": "ike", "text": "bypass udp any -> any"},
                    {"position": 3, "name": "site", "text": "protect(branch) any -> any"},
                ],
                "matching": 5,
                "verdict": {"action": "bypass", "bundle": None, "rule": "ike"},
                "note": None,
                "cache": "no flow",
            },
        ],
        "outcome": {"result": "forwarded", "reason": None},
        "switch": {
            "runs": 2,
            "lists": {
                "outbound": {
                    "epoch": 4,
                    "generation": 9,
                    "hit": False,
                    "rule_hit": False,
                    "asked": True,
                },
            },
            "route": "20.0.0.0/8",
            "group": 7,
            "nexthop": 3,
            "outcome": {"result": "dropped", "reason": "NO_SA"},
        },
        "disagreements": ["route: the switch matches 20.0.0.0/9; the model has 20.0.0.0/8"],
    },
    "spd log": [
        {
            "number": 3,
            "time": "2026-03-01T09:30:00Z",
            "change": "rollback to 1",
            "message": "the web was not reachable",
            "author": {"uid": 1000, "pid": 77, "user": "ann"},
            "changed": {
                "corp": {
                    "inbound": {"added": 0, "removed": 0, "changed": 0, "reordered": True},
                    "outbound": {"added": 1, "removed": 2, "changed": 3, "reordered": False},
                }
            },
            "spds": ["corp"],
        },
        {
            "number": 2,
            "time": "2026-03-01T09:00:00Z",
            "change": "commit",
            "message": None,
            "author": {"uid": 1001, "pid": 78, "user": None},
            "changed": {},
            "spds": ["corp"],
        },
        {
            "number": 1,
            "time": "2026-03-01T08:00:00Z",
            "change": "start",
            "message": None,
            "author": None,
            "changed": {},
            "spds": ["corp"],
        },
    ],
}
EXPECTED |= {
    "spd": [
        "corp outbound: epoch 4, generation 9, 12 flows\n",
        "pinned: cache+rules, the first 4 of 5 rules in the tables\n",
        "2 rules for this router's ND and IKE: --generated",
        "1,234,567",
        "(final)",
    ],
    "sas": [
        "its key has encrypted on engine 1, which does not answer",
        "carries 10.1.0.10 > 10.2.0.9, to 10.0.1.9",
    ],
    "flows": [
        "[2001:db8::1]:40000",
        " tcp ",
        "protect(branch)",
        "later fragments, for this router, by hub",
        "corp inbound, corp outbound: the flow cache is off\n",
        "edge list 3, 2 more lists: all rules are in the rule tables\n",
    ],
}


PAGES: dict[str | None, dict[str, Any]] = {
    "1.0.0.0/8": {
        "data": [ROUTE | {"prefix": f"{n}.0.0.0/8"} for n in range(2, 5)],
        "next": {"after": "4.0.0.0/8", "after_vrf": 3},
    },
    "4.0.0.0/8": {"data": [ROUTE | {"prefix": "100.100.100.0/24", "vrf": 3}]},
}
"""Pages of routes. The key is the prefix `after` of the request."""
