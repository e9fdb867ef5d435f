# SPDX-License-Identifier: Apache-2.0
"""Acts as a typical finsy program: loads a pipeline, writes a next hop and a route, sends a
packet-out.

Runs inside a switch's namespace: `python finsy_client.py ADDRESS P4INFO JSON`. The route punts its
packets to the CPU port, so the packet-out must return as a packet-in.
"""

import asyncio
import sys
from pathlib import Path

import finsy as fy

FRAME = bytes.fromhex(
    "020000000001" "020000000002" "0800"
    "4500001c00000000401166cf" "0a000001" "c0000201" "0007000700080000"
)  # fmt: skip


async def main(address: str, p4info: str, program: str) -> None:
    """Makes all calls in one session. Any failure raises an exception."""
    options = fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), fail_fast=True)
    async with fy.Switch("sluice", address, options) as switch:
        await switch.write(
            [
                +fy.P4TableEntry(
                    "nexthop",
                    match=fy.Match(nexthop_id=7),
                    action=fy.Action("discard_nexthop"),
                ),
                +fy.P4TableEntry(
                    "ipv4_fib",
                    match=fy.Match(vrf=0, dst_addr="192.0.2.0/24"),
                    action=fy.Action("punt_route", reason=12),
                ),
            ]
        )
        wanted = fy.P4TableEntry("nexthop", match=fy.Match(nexthop_id=7))
        # finsy's type hints call `read` a coroutine, but it is an async generator.
        async for entry in switch.read([wanted]):  # type: ignore[attr-defined]
            print("read back:", entry.match["nexthop_id"])
        # finsy delivers packet-ins only to readers that already wait. So the reader starts before
        # the packet-out is sent.
        coming = asyncio.create_task(first_packet(switch))
        await asyncio.sleep(0)
        await switch.write([fy.P4PacketOut(FRAME, **packet_out(kind=2))])
        packet = await asyncio.wait_for(coming, 20)
        print("packet-in: reason", packet["reason"], "same frame:", packet.payload == FRAME)


async def first_packet(switch: fy.Switch) -> fy.P4PacketIn:
    """Returns the next packet-in."""
    return await anext(switch.read_packets())


def packet_out(**given: int) -> dict[str, int]:
    """Returns the metadata of a packet-out. Fields that are not given are 0."""
    names = (
        "kind stage origin verdict egress_port ingress_port ingress_l3_if vrf egress_l3_if "
        "nexthop_id bundle sa_bundle rule list_id generation inbound_list_id inbound_generation"
    )
    return {name: given.get(name, 0) for name in names.split()}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
