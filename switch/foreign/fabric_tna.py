# SPDX-License-Identifier: Apache-2.0
"""Runs fabric-tna's PTF suite (stratum/fabric-tna) for v1model, without its containers.

    fabric_tna.py FABRIC_TNA PROFILE DIRECTORY

Compiles the profile, starts simple_switch_grpc on veth0, veth2, ... and runs ptf_runner.py as
ptf/run/bmv2 does. Some Python modules (test vectors, TRex) exist only in the containers and are
used only for other targets. Empty modules replace them.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

FLAGS = {
    "fabric": [],
    "fabric-int": ["-DWITH_INT"],
    "fabric-upf": ["-DWITH_UPF"],
    "fabric-upf-int": ["-DWITH_UPF", "-DWITH_INT"],
}
# PTF groups of each profile, from ptf/tests/common/Makefile.profiles.
GROUPS = {
    "fabric": "all ^upf ^int ^bng ^dth ^xconnect ^p4rt ^int-dod",
    "fabric-int": "all ^upf ^bng ^dth ^p4rt ^int-dod",
    "fabric-upf": "all ^int ^bng ^dth ^p4rt ^int-dod",
    "fabric-upf-int": "all ^bng ^dth ^p4rt ^int-dod",
}
ABSENT = {
    "matplotlib/pyplot.py": "",
    "numpy.py": "",
    "scipy/stats.py": "",
    "gnmi/gnmi_pb2.py": "",
    "gnmi/gnmi_pb2_grpc.py": "",
    "portmap/pmutils.py": "",
    "target/targetutils.py": "",
    "testvector/tvutils.py": "",
    "trex_stf_lib/trex_client.py": "class CTRexClient: ...\n",
    "trex_stl_lib/api.py": "STLClient = STLPktBuilder = STLStream = STLTXCont = object\n",
    "trex/stl/api.py": "",
}
ADDRESS = ("127.0.0.1", 28000)


def absent_modules(directory: Path) -> None:
    """Writes empty modules that replace the modules for other targets."""
    for name, text in ABSENT.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.parent != directory:
            (file.parent / "__init__.py").touch()
        file.write_text(text)


def main(root: Path, profile: str, directory: Path) -> int:
    """Compiles the profile, starts the switch and runs the suite."""
    copy = directory / "fabric-tna"
    shutil.copytree(root, copy, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    absent_modules(directory / "modules")
    program, info, device = copy / "p4src/v1model/fabric_v1model.p4", "p4info.txt", "bmv2.json"
    command = ["p4c-bm2-ss", "--arch", "v1model", *FLAGS[profile], "-I", str(copy / "p4src")]
    outputs = ["--p4runtime-files", str(directory / info), "-o", str(directory / device)]
    subprocess.run([*command, *outputs, str(program)], check=True)
    ports = copy / "ptf/run/bmv2/port_map.veth.json"
    switch = ["simple_switch_grpc", "--no-p4", "--device-id", "1"]
    for entry in json.loads(ports.read_text()):
        number = int(entry["iface_name"].removeprefix("veth"))
        switch += ["-i", f"{entry['p4_port']}@veth{number - 1}"]
    switch += ["--", "--grpc-server-addr", "{}:{}".format(*ADDRESS), "--cpu-port", "255"]
    common = copy / "ptf/tests/common"
    tester = [sys.executable, "-u", "ptf_runner.py", "--platform", "bmv2"]
    tester += ["--port-map", str(ports), "--ptf-dir", "../../tests/unary", "--cpu-port", "255"]
    tester += ["--device-id", "1", "--grpc-addr", "{}:{}".format(*ADDRESS)]
    tester += ["--p4info", str(directory / info), "--pipeline-config", str(directory / device)]
    tester += ["--profile", profile, *GROUPS[profile].split()]
    environment = os.environ | {"PYTHONPATH": str(directory / "modules")}
    with (directory / "switch.log").open("wb") as log:
        running = subprocess.Popen(switch, stdout=log, stderr=log)
    try:
        while running.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(ADDRESS) == 0:
                    break
            time.sleep(0.1)  # between two attempts to connect
        return subprocess.run(tester, cwd=common, env=environment, check=False).returncode
    finally:
        running.kill()
        running.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3]).resolve()))
