# SPDX-License-Identifier: Apache-2.0
"""Tests the API's limits.

Client and server must have the same limit for the size of a request. The limit must admit a commit
with as many rules as the pipeline can count.
"""

from __future__ import annotations

import json

from sluice.api.limits import REQUEST_BYTES, ServerLimits
from sluice.policy.plain_spd import MAXIMUM_BYTES

RULES = 65_535
RULE = (
    "  - {name: customer-%05d-web-and-mail, action: protect, bundle: branch-office,"
    " source: [10.%d.%d.0/24, 172.16.%d.0/24], destination: [198.51.100.%d, 203.0.113.0/24],"
    " protocol: tcp, destination_ports: [25, 80, 443, 587, 993, 8000-8999]}\n"
)


def test_the_servers_default_is_the_clients_limit() -> None:
    assert ServerLimits().request_bytes == REQUEST_BYTES


def test_all_rules_that_the_pipeline_counts_fit_into_one_request() -> None:
    line = json.dumps(RULE % (1_000_000, 255, 255, 255, 255))
    assert 150 << 20 < len(line) * 1_048_575 < REQUEST_BYTES == MAXIMUM_BYTES


def test_small_requests_do_not_wait_for_large_ones() -> None:
    limits = ServerLimits()
    assert limits.small_bytes < limits.request_bytes
    assert limits.large_at_once < limits.answered_at_once <= limits.connections
