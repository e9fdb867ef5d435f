# SPDX-License-Identifier: Apache-2.0
"""Tests the API's limits.

Client and server have the same limit for the size of a request. The limit admits a commit with
65,535 rules.
"""

from __future__ import annotations

import json

from sluice.api.limits import REQUEST_BYTES, ServerLimits

RULE = (
    "  - {name: customer-%05d-web-and-mail, action: protect, bundle: branch-office,"
    " source: [10.%d.%d.0/24, 172.16.%d.0/24], destination: [198.51.100.%d, 203.0.113.0/24],"
    " protocol: tcp, destination_ports: [25, 80, 443, 587, 993, 8000-8999]}\n"
)


def test_the_servers_default_is_the_clients_limit() -> None:
    assert ServerLimits().request_bytes == REQUEST_BYTES


def test_many_rules_fit_into_one_request() -> None:
    rules = "".join(RULE % (n, n >> 8, n & 255, n & 255, n & 255) for n in range(1, 65_536))
    text = f"spd: corp\ninbound: []\noutbound:\n{rules}"
    request = {"command": "spd commit", "files": [{"name": "corp.yaml", "text": text}]}
    assert 10 << 20 < len(json.dumps(request)) < REQUEST_BYTES


def test_small_requests_do_not_wait_for_large_ones() -> None:
    limits = ServerLimits()
    assert limits.small_bytes < limits.request_bytes
    assert limits.large_at_once < limits.answered_at_once <= limits.connections
