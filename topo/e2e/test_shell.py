# SPDX-License-Identifier: Apache-2.0
"""p4runtime-shell, unmodified, on a running switch: pushes the pipeline, writes, reads back."""

from sluice_testkit import where
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.target import Target

SCRIPT = """
entry = table_entry["nexthop"](action="discard_nexthop")
entry.match["nexthop_id"] = "7"
entry.insert()
for entry in table_entry["nexthop"].read(): print("read back:", entry.match["nexthop_id"].exact)

exit
"""


def test_p4runtime_shell_drives_the_switch(lab: Lab) -> None:
    place = lab.namespace("switch")
    veth(place, "port1", place, "test1")
    target = Target(place, {1: "port1"}, lab.supervisor)
    target.start()
    pipeline = where.pipeline()
    done = place.run(
        *(str(where.p4runtime_shell_python()), "-m", "p4runtime_sh", "--no-ssl"),
        *("--grpc-addr", target.grpc, "--device-id", "1", "--election-id", "0,1"),
        *("--config", f"{pipeline}/router.p4info.txtpb,{pipeline}/router.json"),
        stdin=SCRIPT,
    )
    assert "read back" in done.stdout, done.stdout + done.stderr
