# SPDX-License-Identifier: Apache-2.0
"""Tests three VRFs with the same addresses, each with its own host stack and routing protocols.

The tests run with network namespaces, and once more with VRF devices if the kernel supports them.
`make prove-vrfs` runs them on Debian's kernel, which does.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import patient, wait_until
from sluice_topo import probes

from .isolated_vrfs import BGP_SITE, DISCARDED, ELSEWHERE, OSPF_SITE, SITES, ZEBRA, IsolatedVrfs
from .three_vrfs import (
    EACH_VRF,
    NETWORKS,
    SERVICE,
    VERSIONS,
    VRFS,
    address,
    interface_of,
    router_address,
)


@pytest.fixture(scope="module", params=["device", "namespace"])
def vrfs(request: pytest.FixtureRequest) -> Iterator[IsolatedVrfs]:
    with Lab() as lab, ExitStack() as stack:
        network = IsolatedVrfs(lab, stack, request.param)
        for vrf in VRFS:
            for site in SITES:
                wait_until(partial(network.reaches, vrf, site), 60, f"{site} to answer in {vrf}")
        network.router.controller.wait_synced()
        yield network


def test_each_vrf_has_its_device_or_namespace(vrfs: IsolatedVrfs) -> None:
    assert vrfs.apart() == vrfs.expected
    for vrf in ("red", "blue"):
        which = ("type", "tun") if vrfs.isolation == "namespace" else ("master", vrf)
        members = vrfs.stacks[vrf].run("ip", "-brief", "link", "show", *which).stdout
        names = {line.split()[0] for line in members.splitlines()}
        assert names == {f"eth{interface_of(vrf, host)}" for host in "ab"}


@EACH_VRF
def test_each_routing_protocol_runs_in_each_vrf(vrfs: IsolatedVrfs, vrf: str) -> None:
    peers = {address("b", version) for version in NETWORKS}
    assert vrfs.sessions(vrf) == dict.fromkeys(peers, "Established")
    wait_until(lambda: vrfs.bfd_states(vrf) == ["up", "up"], 30, f"{vrf}'s BFD sessions")
    protocols = {9: "bgp", 8: "ospf", 7: "isis"}
    for number, protocol in protocols.items():
        for prefix in (f"10.{number}.0.0/24", f"2001:db8:{number}::/64"):
            (route,) = vrfs.routes(vrf, prefix)
            legs = [leg["interface"] for leg in route["nexthops"]]
            assert (legs, route["installed"]) == ([f"eth{interface_of(vrf, 'b')}"], True)
            assert route["protocol"].removesuffix("6") == protocol
    assert vrfs.legs(vrf, "10.2.0.0/24") == [f"eth{interface_of(vrf, 'b')}"]


def test_a_route_of_one_vrf_is_in_no_other(vrfs: IsolatedVrfs) -> None:
    assert vrfs.legs("default", f"{ELSEWHERE}/32") == ["eth2"]
    assert vrfs.legs("red", f"{ELSEWHERE}/32") == vrfs.legs("blue", f"{ELSEWHERE}/32") == None  # noqa: E711
    for vrf in VRFS:
        assert not [route for route in vrfs.routes(vrf, "0.0.0.0/0") if route["installed"]]


@VERSIONS
@EACH_VRF
def test_the_switch_forwards_in_the_vrf_alone(vrfs: IsolatedVrfs, vrf: str, version: int) -> None:
    sites = [site for site in SITES if (":" in site) == (version == 6)]
    for to in (address("b", version), *sites):
        mark = f"from {vrf} to {to}".encode()
        vrfs.send(vrf, to, SERVICE, mark)
        wait_until(lambda: (vrf, "b") in vrfs.links_with(mark), 10, f"{to} to get it")  # noqa: B023
        assert vrfs.links_with(mark) == {(vrf, "a"), (vrf, "b")}


@VERSIONS
@EACH_VRF
def test_the_host_answers_in_the_vrf_alone(vrfs: IsolatedVrfs, vrf: str, version: int) -> None:
    """The router answers a ping in the VRF in which it arrived, and in no other, although its
    address is the same in all VRFs.
    """
    pattern = f"{VRFS[vrf]:04x}{version:02x}" + "5ec2" * 4
    for host in "ab":
        done = probes.ping(
            *(vrfs.ends[vrf, "a"], router_address(host, version)),
            count=1,
            size=400,
            options=("-p", pattern),
        )
        assert done.received == 1, done.output
    assert vrfs.links_with(bytes.fromhex(pattern)) == {(vrf, "a")}


@VERSIONS
def test_each_server_of_the_host_is_asked_in_its_own_vrf(vrfs: IsolatedVrfs, version: int) -> None:
    with ExitStack() as stack:
        servers = {vrf: stack.enter_context(vrfs.server(vrf, version)) for vrf in VRFS}
        for vrf in VRFS:
            question = f"question of {vrf} over {version}".encode()
            vrfs.send(vrf, router_address("a", version), SERVICE, question)
        for vrf, server in servers.items():
            question, asker, *_ = server.recvfrom(100)
            assert question == f"question of {vrf} over {version}".encode()
            server.sendto(b"answer to " + question, asker)
    for vrf in VRFS:
        mark = f"answer to question of {vrf} over {version}".encode()
        wait_until(lambda: vrfs.links_with(mark), 10, "the answer on a link")  # noqa: B023
        assert vrfs.links_with(mark) == {(vrf, "a")}
    for vrf in VRFS:
        mark = f"question of {vrf} over {version}".encode()
        assert vrfs.links_with(mark) == {(vrf, "a")}


@EACH_VRF
def test_what_the_host_sends_in_a_vrf_leaves_in_it(vrfs: IsolatedVrfs, vrf: str) -> None:
    mark = f"the host in {vrf}".encode()
    with closing(vrfs.server(vrf, 4)) as sender:
        for to in (address("a"), BGP_SITE[4], OSPF_SITE):
            sender.sendto(mark, (to, SERVICE))
    links = {(vrf, "a"), (vrf, "b")}
    wait_until(lambda: vrfs.links_with(mark) == links, 10, "both links to carry the packet")
    vrfs.settle(vrf)
    assert vrfs.links_with(mark) == links


def test_what_the_host_has_no_route_for_leaves_in_no_other_vrf(vrfs: IsolatedVrfs) -> None:
    with closing(vrfs.server("default", 4)) as sender:
        sender.sendto(b"default's own", (ELSEWHERE, SERVICE))
    wait_until(
        lambda: vrfs.links_with(b"default's own") == {("default", "b")}, 10, "the packet to leave"
    )
    for vrf in ("red", "blue"):
        with (
            closing(vrfs.server(vrf, 4)) as sender,
            pytest.raises(OSError, match=r"unreachable|No route"),
        ):
            sender.sendto(b"nobody's", (ELSEWHERE, SERVICE))
    vrfs.settle("default")
    assert vrfs.links_with(b"nobody's") == set()


@pytest.mark.parametrize("port", DISCARDED.values())
def test_each_vrf_has_its_own_policy(vrfs: IsolatedVrfs, port: int) -> None:
    for vrf in VRFS:
        mark = f"{vrf} to port {port}".encode()
        vrfs.send(vrf, address("b"), port, mark)
        vrfs.settle(vrf)
        passes = DISCARDED.get(vrf) != port
        assert vrfs.links_with(mark) == ({(vrf, "a"), (vrf, "b")} if passes else {(vrf, "a")})


def test_an_interface_that_leaves_its_vrf_is_closed(vrfs: IsolatedVrfs) -> None:
    if vrfs.isolation != "device":
        pytest.skip("in a network namespace, an interface belongs to no VRF device")
    red = f"eth{interface_of('red', 'a')}"
    try:
        vrfs.place.run("ip", "link", "set", red, "nomaster")
        wait_until(lambda: vrfs.apart()["red"] is None, 10, "the controller to notice")
        # The kernel sets an interface down and up when the interface's VRF changes, so routes must
        # first come back.
        wait_until(partial(vrfs.reaches, "red", BGP_SITE[4]), 30, "red's site to answer")
        with closing(vrfs.server("default", 4)) as server:
            vrfs.send("red", router_address("a"), SERVICE, b"red's secret")
            vrfs.settle("red")
            vrfs.send("default", router_address("a"), SERVICE, b"default's question")
            assert server.recvfrom(100)[0] == b"default's question"
    finally:
        vrfs.place.run("ip", "link", "set", red, "master", "red")
    wait_until(lambda: vrfs.apart()["red"] == "red", 10, "the controller to notice")


def test_a_restarted_controller_finds_the_vrfs_as_they_were(vrfs: IsolatedVrfs) -> None:
    """After a restart, the controller reports the isolation of each VRF as before, and traffic and
    services work in each VRF.

    On an emulated machine, the restart takes so long that the host interfaces are deleted, and new
    ones join the VRFs. So BGP sessions may go down there.
    """
    before = {vrf: vrfs.establishments(vrf) for vrf in VRFS}
    vrfs.router.controller.kill()
    vrfs.router.controller.start()
    vrfs.router.controller.wait_synced()
    assert vrfs.apart() == vrfs.expected
    for vrf in VRFS:
        wait_until(partial(vrfs.reaches, vrf, BGP_SITE[4]), 30, f"{vrf}'s site to answer")
        mark = f"{vrf} after the restart".encode()
        with closing(vrfs.server(vrf, 4)) as server:
            vrfs.send(vrf, router_address("a"), SERVICE, mark)
            assert server.recvfrom(100)[0] == mark
        assert vrfs.links_with(mark) == {(vrf, "a")}
        wait_until(partial(vrfs.is_up, vrf), 60, f"{vrf}'s BGP sessions")
    if vrfs.isolation == "namespace" and patient(1) == 1:  # not emulated: interfaces are kept
        assert {vrf: vrfs.establishments(vrf) for vrf in VRFS} == before


def test_a_routing_daemon_that_restarts_is_its_vrfs_own(vrfs: IsolatedVrfs) -> None:
    if vrfs.isolation != "namespace":
        pytest.skip("all VRFs share one FRR")
    before = {vrf: vrfs.establishments(vrf) for vrf in ("default", "blue")}
    frr = vrfs.frrs["red"]
    frr.configure("ip route 198.51.100.0/24 blackhole")
    wait_until(lambda: vrfs.routes("red", "198.51.100.0/24"), 30, "red's new route")
    assert not vrfs.routes("default", "198.51.100.0/24")
    assert not vrfs.routes("blue", "198.51.100.0/24")
    frr.kill_daemon("zebra")
    frr.kill_daemon("staticd")
    wait_until(lambda: vrfs.fpm_peer("red") is None, 10, "the controller to notice")
    for vrf in VRFS:  # the switch keeps forwarding
        assert vrfs.reaches(vrf, BGP_SITE[4])
    assert vrfs.routes("red", "198.51.100.0/24")
    frr.start_daemon("zebra", ZEBRA)
    frr.start_daemon("staticd")
    wait_until(lambda: vrfs.fpm_peer("red") is not None, 30, "the new zebra")
    # zebra 8.4.4 may keep a route of its predecessor in the kernel forever: it removes only those
    # that it has read within a second of its start. So the new staticd must first announce the
    # route and then withdraw it.
    for no in ("", "no "):
        frr.configure(f"{no}ip route 198.51.100.0/24 blackhole")
    wait_until(lambda: not vrfs.routes("red", "198.51.100.0/24"), 30, "the route to go")
    # bgpd 8.4.4 sends no routes to a new zebra, so red's BGP routes are not checked.
    for vrf in before:
        assert vrfs.legs(vrf, "10.9.0.0/24") == [f"eth{interface_of(vrf, 'b')}"]
    assert {vrf: vrfs.establishments(vrf) for vrf in before} == before


@EACH_VRF
def test_no_other_user_sends_from_ikes_ports_in_a_vrf(vrfs: IsolatedVrfs, vrf: str) -> None:
    """In each VRF, only root can send from IKE's port 4500. Otherwise a user could bypass policy,
    since a generated rule bypasses packets from that port.
    """
    if vrfs.isolation != "namespace":
        pytest.skip("test_ike_ports tests a shared host stack")
    mark = f"{vrf}'s ike"
    send = "import socket,sys\nto=socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    send += "to.bind(('', int(sys.argv[1])))\n"
    send += "to.sendto(bytes(4) + sys.argv[2].encode(), (sys.argv[3], 4500))"
    for user, passes in ((65534, False), (0, True)):
        python = ("setpriv", f"--reuid={user}", "--clear-groups", sys.executable, "-c", send)
        done = vrfs.stacks[vrf].run(*python, "4500", f"{mark} of {user}", address("a"), check=False)
        assert (done.returncode == 0) == passes, done.stderr
        if passes:
            sent = f"{mark} of {user}".encode()
            wait_until(lambda: vrfs.links_with(sent) == {(vrf, "a")}, 10, "the packet on its link")  # noqa: B023
    assert vrfs.links_with(f"{mark} of 65534".encode()) == set()


@pytest.mark.parametrize("vrf", ["red", "blue"])
def test_no_other_user_brings_routes_in_a_vrf(vrfs: IsolatedVrfs, vrf: str) -> None:
    if vrfs.isolation != "namespace":
        pytest.skip("all VRFs share one FPM port")
    wait_until(lambda: vrfs.fpm_peer(vrf) is not None, 20, "the VRF's own FPM session")
    before = vrfs.refused()
    connect = "import socket; socket.create_connection(('127.0.0.1', 2620)).recv(1)"
    python = ("setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", connect)
    vrfs.stacks[vrf].run(*python, check=False)
    assert vrfs.refused() == before + 1
    assert vrfs.fpm_peer(vrf) is not None
