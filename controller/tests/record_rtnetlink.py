#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the kernel's rtnetlink messages, as goldens for the decoder's tests.

    sudo PYTHONPATH=controller/src:controller/tests python3 controller/tests/record_rtnetlink.py \
        controller/tests/goldens/rtnetlink/changes.netlink

Runs in its own network namespace. For each step, writes the notifications about links, addresses,
neighbours, routes and next-hop objects, one datagram per line, in hex.
"""

from __future__ import annotations

import platform
import select
import sys
from pathlib import Path

from kernel_namespace import ip, network_namespace
from sluice.sources.kernel import GROUPS
from sluice.sources.netlink_socket import NetlinkSocket

RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP = 7, 11, 32
QUIET_SECONDS = 0.3

STEPS = (
    "link add v1 index 10 address 02:00:00:00:00:01 type veth peer name v2 index 11",
    "link set v2 address 02:00:00:00:00:02",
    "link set v1 up",
    "link set v2 up",
    "addr add 10.1.1.1/24 dev v1",
    "addr add 10.2.2.1 peer 10.2.2.9 dev v1",
    "addr add 2001:db8:1::1/64 dev v1 nodad",
    "neigh add 10.1.1.2 lladdr 02:00:00:00:00:aa dev v1 nud stale",
    "neigh add 2001:db8:1::2 lladdr 02:00:00:00:00:aa dev v1 nud permanent",
    "neigh add proxy 10.1.1.7 dev v1",
    "neigh del 10.1.1.2 dev v1",
    "route add 10.3.0.0/16 via 10.1.1.2 metric 7",
    "route add 10.4.0.0/16 nexthop via 10.1.1.2 weight 3 nexthop via 10.1.1.3",
    "route add 10.5.0.0/16 via inet6 2001:db8:1::2 dev v1",
    "route add prohibit 10.6.0.0/16",
    "route add throw 10.7.0.0/16",
    "route add 10.8.0.0/16 tos 0x10 via 10.1.1.2",
    "route add 10.9.0.0/16 via 10.1.1.2 table 1000",
    "route add default via 10.1.1.2",
    "-6 route add 2001:db8:3::/48 nexthop via 2001:db8:1::2 nexthop via 2001:db8:1::3",
    "-6 route add 2001:db8:4::/48 from 2001:db8:5::/48 via 2001:db8:1::2",
    "nexthop add id 1 via 10.1.1.2 dev v1",
    "nexthop add id 2 blackhole",
    "nexthop add id 3 group 1,200",
    "route add 10.10.0.0/16 nhid 3",
    "nexthop del id 3",
    "route del 10.3.0.0/16",
    "addr del 10.1.1.1/24 dev v1",
    "link add m1 index 12 link v1 address 00:00:5e:00:01:05 type macvlan mode bridge",
    "link set m1 up",
    "addr add 10.1.1.254/24 dev m1",
    "link set m1 protodown on",
    "link set m1 protodown off",
    "link set m1 protodown on",
    "link set v2 down",
    "link set v2 up",
    "link del m1",
    "link set v2 down",
    "link del v1",
)


def main() -> int:
    if len(sys.argv) != 2:
        print(f"usage (as root): {sys.argv[0]} OUT_FILE", file=sys.stderr)
        return 2
    with network_namespace(), Path(sys.argv[1]).open("w") as out:
        groups = (*GROUPS, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP)
        kernel = NetlinkSocket(groups)
        out.write(f"# Linux {platform.release().split('-')[0]}, rtnetlink\n")
        for step in STEPS:
            out.write(f"\n== ip {step}\n")
            ip(step)
            while select.select([kernel], [], [], QUIET_SECONDS)[0]:
                datagram = kernel.receive()
                if datagram is not None:
                    out.write(datagram.hex() + "\n")
        kernel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
