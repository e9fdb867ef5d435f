# SPDX-License-Identifier: Apache-2.0
"""Tests a second controller of the same switch, which is a standby.

The standby changes nothing on its host. It reports its role, and notifies the service manager that
it is ready. When the primary is gone, the standby takes over.
"""

import json
import socket
from pathlib import Path
from typing import Any

from sluice_testkit import where
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.process import Process, Supervisor, run
from sluice_testkit.wait import wait_until
from sluice_topo.description import two_sites
from sluice_topo.routers import P4Router


class Manager:
    """Acts as the service manager: receives the notifications of a service through a socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(20)

    def wait_for(self, assignment: str) -> None:
        """Waits until the service has sent this notification."""
        while assignment not in self._socket.recv(1000).decode().splitlines():
            pass


def role(api: Path) -> Any:
    """Returns the role of the controller at this API socket, or None if no controller answers."""
    command = [str(where.sluice()), "show", "status", "--json", "--socket", str(api)]
    done = run(command, check=False)
    return json.loads(done.stdout)["role"] if done.returncode == 0 else None


class Second:
    """Runs a router's second controller, with its own configuration file and namespace."""

    def __init__(
        self, first: P4Router, place: Namespace, directory: Path, supervisor: Supervisor
    ) -> None:
        self.place = place
        self.socket = directory / "second.sock"
        self.manager = Manager(directory / "notify")
        self.metrics = directory / "metrics.sock"
        config = first.controller.config | {
            "api": {"socket": str(self.socket)},
            "metrics": {"listen": f"unix:{self.metrics}"},
        }
        if place is not first.namespace:
            config["state_dir"] = str(directory / "second-state")
        path = directory / "second.yaml"
        path.write_text(json.dumps(config))
        words = ["env", f"NOTIFY_SOCKET={self.manager.path}", str(where.sluice()), "run", str(path)]
        self.process: Process = supervisor.start("second", place.argv(words))

    def sluice(self, *words: str) -> tuple[int, str]:
        """Runs a `sluice` command for this controller. Returns its exit status and output."""
        done = run([str(where.sluice()), *words, "--socket", str(self.socket)], check=False)
        return done.returncode, done.stdout + done.stderr

    def scrape(self) -> str:
        """Returns the metrics as Prometheus would get them, over HTTP."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.metrics))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: r1\r\n\r\n")
            with connection.makefile("rb") as answer:
                return answer.read().decode()

    def role(self) -> Any:
        """Returns the controller's role, or None while the controller does not answer."""
        return role(self.socket)


def links(place: Namespace) -> list[str]:
    """Returns the names of a namespace's network devices."""
    return sorted(link["ifname"] for link in json.loads(place.run("ip", "-j", "link").stdout))


def index(place: Namespace, name: str) -> Any:
    """Returns the kernel's index of a network device."""
    return json.loads(place.run("ip", "-j", "link", "show", name).stdout)[0]["ifindex"]


def test_a_second_controller_stands_by_until_the_first_has_gone(lab: Lab) -> None:
    place = lab.namespace("r1")
    for port in (1, 2, 3):
        veth(place, f"port{port}", place, f"peer{port}")
    router = P4Router(two_sites().router("r1"), place, lab.directory, lab.supervisor)
    router.target.start()
    router.controller.start()
    router.controller.wait_synced()

    second = Second(router, lab.namespace("second"), lab.directory, lab.supervisor)
    before = links(second.place)
    second.manager.wait_for("READY=1")
    wait_until(lambda: second.role() == "standby", 20, "the second controller to stand by")
    code, said = second.sluice("show", "status")
    assert code == 0
    assert "standby: another controller is primary" in said
    assert second.sluice("show", "status", "--check") == (0, "")
    code, said = second.sluice("show", "routes")
    assert code == 1
    assert "this controller is on standby" in said
    assert 'sluice_role{router="r1",role="standby"} 1\n' in second.scrape()
    assert "INVALID_ARGUMENT" not in second.process.log()
    assert links(second.place) == before
    assert router.controller.synced()

    router.controller.kill()
    second.manager.wait_for("STATUS=the switch is programmed")
    assert second.role() == "primary"
    scraped = second.scrape()
    assert scraped.startswith("HTTP/1.1 200 OK\r\n")
    assert 'sluice_role{router="r1",role="primary"} 1\n' in scraped
    assert 'sluice_interface_up{router="r1",interface="eth1"} 1\n' in scraped
    assert {"eth1", "eth2", "eth3"} <= set(links(second.place))

    router.controller.launch()
    first = router.controller.socket
    wait_until(lambda: role(first) == "standby", 20, "the first to stand by")
    assert second.role() == "primary"


def test_on_one_host_the_standby_takes_the_same_interfaces_over(lab: Lab) -> None:
    """If two controllers share state directory and interfaces on one host, the second takes over
    when the first ends.

    The interfaces are not created anew.
    """
    place = lab.namespace("r1")
    for port in (1, 2, 3):
        veth(place, f"port{port}", place, f"peer{port}")
    router = P4Router(two_sites().router("r1"), place, lab.directory, lab.supervisor)
    router.target.start()
    router.controller.start()
    before = index(place, "eth1")
    second = Second(router, place, lab.directory, lab.supervisor)
    wait_until(lambda: second.role() == "standby", 20, "the second controller to stand by")
    router.controller.stop()
    second.manager.wait_for("STATUS=the switch is programmed")
    assert second.process.running()
    assert second.role() == "primary"
    assert index(place, "eth1") == before
