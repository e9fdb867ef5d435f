# SPDX-License-Identifier: Apache-2.0
"""Installs, runs, upgrades under traffic and removes the packages in a bare Debian 12.

Order: all tests use the same system, and each continues where the previous one ended.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bare_root import BareRoot, Booted

from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.pages import Shown
from sluice_testkit.process import run
from sluice_testkit.wait import wait_until

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "build" / "dist"
UPGRADE = ROOT / "build" / "dist-upgrade"
PACKAGES = ("sluice-switch", "sluice")
UNITS = ("sluice-switch.service", "sluice-esp.service", "sluice.service")
MOST_EXPOSED = 3.0
CAPABILITIES = {"sluice-switch": 1 << 12 | 1 << 13, "sluice": 1 << 12}  # NET_ADMIN, NET_RAW
SYS_NICE = 1 << 23
PINGS, EVERY = 3000, 0.005
"""Number of pings while the controller is upgraded, and their interval in seconds."""

METRICS = "--metrics-address unix:/run/sluice-switch/metrics.sock"
POLICY = {
    "spd": "lan",
    "outbound": [
        {"name": "guest", "action": "bypass", "source": "10.1.0.2", "protocol": ["icmp"]},
    ],
    "inbound": [{"name": "all", "action": "bypass", "source": ["10.2.0.0/24", "10.9.0.0/24"]}],
}
CONFIG = {
    "router": "r1",
    "switch": {"address": "unix:/run/sluice/switch-p4rt.sock", "device_id": 1, "cpu_port": 510},
    "spds": [{"name": "lan", "file": "lan.yaml"}],
    "interfaces": [
        {
            "name": f"eth{port}",
            "port": port,
            "device": f"port{port}",
            "mac": f"02:00:00:00:01:{port:02}",
            "addresses": [f"10.{port}.0.1/24"],
            "spd": spd,
        }
        for port, spd in ((1, "none"), (2, "lan"))
    ],
}


FRR = """
fpm address 127.0.0.1 port 2620
ip route 10.9.0.0/24 10.2.0.2
"""
# Paths that may be left after the removal of the packages. This test itself creates the paths in
# etc/systemd/system.
KEPT = ("etc/sluice", "var/lib/sluice", "etc/systemd/system/sluice")


def version() -> str:
    return run([str(ROOT / "packaging/version")]).stdout.strip()


def package(name: str, directory: Path = DIST) -> Path:
    found = list(directory.glob(f"{name}_{version()}*.deb"))
    assert len(found) == 1, f"make deb first: {found}"
    return found[0]


class Router:
    """Two hosts, connected by a router that runs the installed packages. No kernel forwards."""

    def __init__(self, root: BareRoot, lab: Lab):
        self.root = root
        self.namespace = lab.namespace("r1")
        self.hosts = [self._host(lab, number) for number in (1, 2)]
        self.hosts[0].add_address("eth0", "10.1.0.3/24")  # no rule admits this address
        self.namespace.sysctl(ipv4__ip_forward=0, ipv6__conf__all__forwarding=0)
        self.system = Booted(root, self.namespace, lab.supervisor)

    def _host(self, lab: Lab, number: int) -> Namespace:
        host = lab.namespace(f"h{number}")
        veth(host, "eth0", self.namespace, f"port{number}")
        host.add_address("eth0", f"10.{number}.0.2/24")
        host.run("ip", "route", "add", "default", "via", f"10.{number}.0.1")
        return host

    def problems(self) -> list[str]:
        return self.system.run("sluice", "show", "status", "--check", check=False).splitlines()

    def healthy(self) -> bool:
        return self.problems() == []

    def interface_index(self, name: str) -> int:
        shown = self.namespace.run("ip", "-json", "link", "show", "dev", name).stdout
        return int(json.loads(shown)[0]["ifindex"])

    def passes(self, source: str, destination: str = "10.2.0.2") -> bool:
        words = ("ping", "-c1", "-W1", "-I", source, destination)
        return run(self.hosts[0].argv(words), check=False).returncode == 0


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as made:
        yield made


@pytest.fixture(scope="module")
def root(lab: Lab) -> Iterator[BareRoot]:
    made = BareRoot(lab.directory / "root")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def before(root: BareRoot) -> set[str]:
    """Installs FRR and the dependencies of Sluice. Returns all files that exist before Sluice is
    installed.
    """
    root.apt("update")
    root.apt("install", "frr", "python3", "libnftables1", "libstdc++6", "adduser")
    return root.files()


@pytest.fixture(scope="module")
def installed(root: BareRoot, before: set[str]) -> BareRoot:
    assert not [name for name in before if "sluice" in name]
    root.apt("install", *(root.put(package(name)) for name in PACKAGES))
    return root


@pytest.fixture(scope="module")
def router(installed: BareRoot, lab: Lab) -> Iterator[Router]:
    etc = installed.path / "etc"
    replace(etc / "sluice/switch.env", 'PORTS=""', 'PORTS="-i 1@port1 -i 2@port2"')
    replace(etc / "sluice/switch.env", "--device-id 1", f"--device-id 1 {METRICS}")
    (etc / "sluice/sluice.yaml").write_text(yaml.safe_dump(CONFIG))
    (etc / "sluice/lan.yaml").write_text(yaml.safe_dump(POLICY))
    replace(etc / "frr/daemons", 'zebra_options="', 'zebra_options="-M dplane_fpm_nl ')
    replace(etc / "frr/daemons", "bgpd=no", "bgpd=yes")
    (etc / "frr/frr.conf").write_text(FRR)
    for unit in UNITS:  # shorten the watchdog intervals of the units
        drop_in = etc / f"systemd/system/{unit}.d"
        drop_in.mkdir(parents=True)
        (drop_in / "test.conf").write_text("[Service]\nWatchdogSec=4\n")
    made = Router(installed, lab)
    yield made
    made.system.stop()


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_files_are_where_they_belong(installed: BareRoot) -> None:
    there = installed.files()
    for name in ("sluice", "sluice-switch", "sluice-esp"):
        assert f"usr/bin/{name}" in there
    assert "usr/share/sluice-switch/router.json" in there
    assert {f"etc/sluice/{name}" for name in ("sluice.yaml", "switch.env", "esp.env")} <= there
    for program in PACKAGES:
        assert f"usr/share/zsh/vendor-completions/_{program}" in there
        assert f"usr/share/fish/vendor_completions.d/{program}.fish" in there
    for name in PACKAGES:
        assert installed.run("dpkg", "--verify", name) == ""
        conffiles = installed.run("dpkg-query", "--show", "--showformat=${Conffiles}", name)
        assert "/etc/sluice/" in conffiles


def test_programs_say_version_commit_and_pipeline(installed: BareRoot) -> None:
    built_from = rf"{re.escape(version())} \(commit [0-9a-f]{{12}}(-dirty)?"
    pattern = rf"{built_from}, pipeline ([0-9a-f]{{12}})\)"
    digests = set()
    for program in ("sluice", "sluice-switch"):
        said = installed.run(program, "--version").strip()
        found = re.fullmatch(f"{program} {pattern}", said)
        assert found, said
        digests.add(found[2])
    assert len(digests) == 1
    assert re.fullmatch(
        rf"sluice-esp {built_from}\)", installed.run("sluice-esp", "--version").strip()
    )


def test_bash_completes_the_installed_programs(installed: BareRoot) -> None:
    for program, words, expected in (
        ("sluice-switch", ("ctl", "rem"), "remove-port"),
        ("sluice", ("show", "inter"), "interfaces"),
    ):
        file = f"/usr/share/bash-completion/completions/{program}"
        typed = " ".join((program, *words))
        said = installed.run(
            "bash",
            "-ec",
            f"source {file}; COMP_WORDS=({typed}); COMP_CWORD={len(words)};"
            f" function=$(complete -p {program} | sed 's/.*-F \\([^ ]*\\).*/\\1/');"
            f" $function {program} {words[-1]} {words[-2]}; echo ${{COMPREPLY[@]}}",
        )
        assert said.split() == [expected], said


def test_licences_of_others_are_in_the_packages(installed: BareRoot) -> None:
    for name, manifest in (("sluice-switch", "switch"), ("sluice", "controller/native")):
        said = (installed.path / f"usr/share/doc/{name}/copyright").read_text()
        tree = ["cargo", "tree", "--locked", "--edges=normal", "--prefix=none", "--format={p}"]
        crates_of = ("sluice-switch", "sluice-esp-process", "sluice-controller-native")
        packaged = crates_of[:2] if manifest == "switch" else crates_of[2:]
        argv = [*tree, f"--manifest-path={ROOT}/{manifest}/Cargo.toml"]
        argv += [f"--package={crate}" for crate in packaged]
        crates = {line.split(" (")[0].replace(" v", " ") for line in run(argv).stdout.splitlines()}
        others = {found for found in crates if found and not found.startswith("sluice-")}
        assert len(others) > 50
        assert not {found for found in others if f"  {found}: " not in said}
        assert "Permission is hereby granted, free of charge" in said
    assert "  grpcio " in said


def test_units_are_valid_and_closed(
    installed: BareRoot, capsys: pytest.CaptureFixture[str]
) -> None:
    for service in UNITS:
        assert installed.run("systemd-analyze", "verify", service) == ""
        path = f"/usr/lib/systemd/system/{service}"
        shown = installed.run("systemd-analyze", "security", "--offline=true", "--no-pager", path)
        exposed = re.search(r"Overall exposure level for \S+: ([\d.]+)", shown)
        assert exposed, shown
        with capsys.disabled():
            print(f"\n{exposed[0]}")
        assert float(exposed[1]) <= MOST_EXPOSED


def test_no_service_is_started_by_the_installation(installed: BareRoot) -> None:
    for service in UNITS:
        assert installed.run("systemctl", "is-enabled", service, check=False).strip() == "disabled"


def test_services_start_in_their_sandbox_and_say_that_they_are_ready(router: Router) -> None:
    router.system.run("systemctl", "stop", "frr")
    router.system.start("sluice", "frr")  # sluice also starts sluice-switch
    for service in ("sluice-switch", "sluice", "frr"):
        assert router.system.property(service, "ActiveState") == "active"
        assert router.system.property(service, "NRestarts") == "0"


def test_it_forwards_and_enforces_policy(router: Router) -> None:
    wait_until(lambda: router.passes("10.1.0.2"), 30, "a packet that policy lets pass")
    assert not router.passes("10.1.0.3")
    wait_until(router.healthy, 30, "no problems in `sluice show status`")


def test_routes_come_from_frr(router: Router) -> None:
    router.hosts[1].add_address("lo", "10.9.0.1/32")
    wait_until(lambda: router.passes("10.1.0.2", "10.9.0.1"), 30, "FRR's route in the switch")
    assert not router.passes("10.1.0.3", "10.9.0.1")


@pytest.mark.executes("docs/how-to/vrfs.md")
def test_frr_runs_in_a_vrf_s_namespace(router: Router, shown: Shown) -> None:
    (router.root.path / "etc/frr/frr.conf").write_text(f"{FRR}router bgp 65001 vrf red\nexit\n")
    router.system.run("ip", "netns", "add", "red")  # no controller has created the namespace
    for command in shown.rest():
        router.system.run("bash", "-euc", command.text)
    ask = ("vtysh", "-N", "red", "-c", "show running-config")
    wait_until(lambda: "router bgp 65001" in router.system.run(*ask), 30, "FRR in the namespace")
    inside = router.system.run("ip", "netns", "pids", "red").split()
    names = {router.system.run("cat", f"/proc/{pid}/comm", check=False).strip() for pid in inside}
    assert {"zebra", "bgpd"} <= names
    router.system.run("systemctl", "disable", "--now", "frr@red")
    router.system.run("ip", "netns", "delete", "red")
    (router.root.path / "etc/frr/frr.conf").write_text(FRR)


def test_services_have_their_capabilities_and_nothing_else(router: Router) -> None:
    uid = router.system.run("id", "-u", "sluice").strip()
    for service, expected in CAPABILITIES.items():
        text = Path(f"/proc/{router.system.pid(service)}/status").read_text()
        status = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))
        assert int(status["CapPrm"], 16) == expected
        assert int(status["CapBnd"], 16) & ~SYS_NICE == expected
        assert int(status["CapAmb"], 16) == 0
        assert status["Uid"].split() == [uid] * 4
        assert status["NoNewPrivs"] == "1"
        assert status["Seccomp"] == "2"


def test_the_switch_serves_metrics_in_its_sandbox(router: Router) -> None:
    ask = (
        "import socket; s = socket.socket(socket.AF_UNIX);"
        " s.connect('/run/sluice-switch/metrics.sock');"
        " s.sendall(b'GET /metrics HTTP/1.0\\r\\n\\r\\n');"
        " print(s.makefile().read())"
    )
    text = router.system.run("python3", "-c", ask)
    assert 'sluice_dataplane_port_up{interface="port1",port="1"} 1\n' in text
    assert re.search(r"^process_resident_memory_bytes [0-9.e+]+$", text, re.MULTILINE), text


def wait_until_alive(router: Router, service: str) -> None:
    """Waits until a service has sent another keep-alive."""

    def sign() -> int:
        return int(router.system.property(service, "WatchdogTimestampMonotonic"))

    first = sign()
    wait_until(lambda: sign() > first, 10, f"{service} to be alive")


def wait_until_restarted(router: Router, service: str) -> None:
    """Waits until the watchdog has restarted a service that hangs, and the service is ready."""
    wait_until(lambda: router.system.property(service, "NRestarts") == "1", 30, "the watchdog")
    router.system.start(service)


def test_an_engine_runs_in_its_sandbox(router: Router) -> None:
    uid = router.system.run("id", "-u", "sluice").strip()
    router.namespace.run("ip", "link", "add", "engine", "type", "veth", "peer", "name", "port9")
    router.system.run("systemctl", "start", "sluice-esp")
    try:
        assert "port: " in router.system.run("sluice-esp", "ctl", "show")
        engine = router.system.pid("sluice-esp")
        text = Path(f"/proc/{engine}/status").read_text()
        status = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))
        assert int(status["CapPrm"], 16) == CAPABILITIES["sluice-switch"]
        assert int(status["CapBnd"], 16) == CAPABILITIES["sluice-switch"]
        assert status["Uid"].split() == [uid] * 4
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        state = router.system.run("stat", "-c", "%U %a", "/var/lib/sluice-esp")
        assert state.strip() == "sluice 700"
        wait_until_alive(router, "sluice-esp")
        os.kill(engine, signal.SIGSTOP)
        wait_until_restarted(router, "sluice-esp")
        assert router.system.pid("sluice-esp") != engine
        assert "port: " in router.system.run("sluice-esp", "ctl", "show")
    finally:
        router.system.run("systemctl", "stop", "sluice-esp")
        router.namespace.run("ip", "link", "delete", "engine")


def test_both_give_signs_of_life(router: Router) -> None:
    for service in PACKAGES:
        wait_until_alive(router, service)


def test_a_service_that_hangs_is_started_again(router: Router) -> None:
    hung = router.system.pid("sluice")
    os.kill(hung, signal.SIGSTOP)
    wait_until_restarted(router, "sluice")
    assert router.system.pid("sluice") != hung
    wait_until(router.healthy, 30, "no problems in `sluice show status`")


def test_logs_have_fields(router: Router) -> None:
    def records(service: str) -> list[dict[str, str]]:
        lines = router.system.run("journalctl", f"--unit={service}", "--output=json").splitlines()
        return [json.loads(line) for line in lines]

    switch = [found for found in records("sluice-switch") if "SLUICE_ADDRESS" in found]
    assert [found["MESSAGE"] for found in switch][-1] == "serving P4Runtime"
    logged = [found for found in records("sluice") if "SLUICE_LOGGER" in found]
    assert {found["SLUICE_ROUTER"] for found in logged} == {"r1"}
    assert {found["SYSLOG_IDENTIFIER"] for found in logged} == {"sluice"}


def test_operators_reach_the_api_and_not_p4runtime(router: Router) -> None:
    def mode(path: str) -> str:
        return router.system.run("stat", "--format=%U %G %a", path).strip()

    assert mode("/run/sluice") == "sluice sluice 750"
    assert mode("/run/sluice/r1.sock") == "sluice sluice 660"
    assert mode("/run/sluice/switch-p4rt.sock") == "sluice sluice 600"
    assert mode("/var/lib/sluice") == "sluice sluice 700"
    as_operator = ("setpriv", "--reuid=65534", "--regid=sluice", "--clear-groups")
    as_stranger = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    ask = ("sluice", "show", "status", "--socket", "/run/sluice/r1.sock")
    assert "synced" in router.system.run(*as_operator, *ask)
    assert "port1" in router.system.run(*as_operator, "sluice-switch", "ctl", "ports")
    assert "ermission denied" in router.system.run(*as_stranger, *ask, check=False)


def test_the_switch_forwards_while_the_controller_is_upgraded(
    router: Router, capsys: pytest.CaptureFixture[str]
) -> None:
    later = router.root.put(package("sluice", UPGRADE))
    words = ("ping", "-q", f"-c{PINGS}", f"-i{EVERY}", "-I", "10.1.0.2", "10.2.0.2")
    switch, controller = (router.system.pid(service) for service in PACKAGES)
    interface = router.interface_index("eth1")
    with subprocess.Popen(
        router.hosts[0].argv(words), stdout=subprocess.PIPE, text=True
    ) as traffic:
        router.system.run("dpkg", "--install", later)
        assert router.system.pid("sluice") != controller
        wait_until(router.healthy, 30, "no problems in `sluice show status`")
        assert traffic.poll() is None, "the upgrade took longer than the traffic"
        said, _ = traffic.communicate(timeout=120)
    found = re.search(r"(\d+) packets transmitted, (\d+) received", said)
    assert found, said
    sent, received = int(found[1]), int(found[2])
    with capsys.disabled():
        print(f"\ncontroller upgraded under traffic: {sent - received} of {sent} packets lost")
    assert router.system.pid("sluice-switch") == switch
    assert router.interface_index("eth1") == interface, "FRR has lost its interfaces"
    assert sent == received == PINGS
    assert not router.passes("10.1.0.3")
    kept = router.root.path / "etc/sluice/sluice.yaml"
    assert yaml.safe_load(kept.read_text()) == CONFIG


def test_removal_leaves_configuration_and_state(router: Router, before: set[str]) -> None:
    def left() -> set[str]:
        return {name for name in router.root.files() - before if "sluice" in name}

    running = [Path(f"/proc/{router.system.pid(service)}") for service in PACKAGES]
    router.system.run("dpkg", "--remove", *PACKAGES)
    assert not [process for process in running if process.exists()]
    kept = {"etc/sluice/sluice.yaml", "etc/sluice/switch.env", "var/lib/sluice/r1/spd.json"}
    assert kept <= left()
    assert {name for name in left() if not name.startswith(KEPT)} == set()

    router.system.run("dpkg", "--purge", *PACKAGES)
    own = {name for name in left() if not name.startswith("etc/systemd/system/")}
    assert own <= {"etc/sluice", "etc/sluice/lan.yaml"}  # the operator created this file


@pytest.mark.executes("docs/how-to/install.md", "apt install")
def test_the_page_s_command_installs(router: Router, shown: Shown) -> None:
    there = router.root.path / "build" / "dist"
    there.mkdir(parents=True)
    for name in PACKAGES:
        shutil.copy(package(name), there)
    answer = router.root.path / "etc" / "apt" / "apt.conf.d" / "answer"
    answer.write_text('APT::Get::Assume-Yes "true";\n')  # there is no terminal to ask
    router.system.run("bash", "-euc", f"cd /; {shown.take('apt install').text}")
    for service in PACKAGES:
        assert router.system.run("dpkg-query", "--show", "--showformat=${Status}", service) == (
            "install ok installed"
        )
