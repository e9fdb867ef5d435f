# SPDX-License-Identifier: Apache-2.0
"""Tests mutual TLS between controller and switch: the switch accepts only controllers whose
certificate was issued by its authority.

The certificates are created by the commands in docs/security.md.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit import where
from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.process import run
from sluice_testkit.target import Target
from sluice_testkit.wait import wait_until

ADDRESS = "192.0.2.1"  # address in the switch's certificate, as in the page's commands
SERVER = f"{ADDRESS}:9559"


def make_certificates(directory: Path) -> Path:
    """Creates the keys and certificates of an authority, a switch and a controller, as PEM
    files.
    """
    page = (where.repository() / "docs" / "security.md").read_text(encoding="utf-8")
    found = re.search(r"## Mutual TLS.*?```sh\n(.*?)```", page, re.DOTALL)
    assert found is not None
    directory.mkdir()
    run(["bash", "-eu", "-c", f"cd {directory}\n{found[1]}"])
    return directory


class Router:
    """Runs a switch with TLS, and its controller, in a namespace."""

    def __init__(self, lab: Lab) -> None:
        self.place = lab.namespace("r1")
        veth(self.place, "port1", self.place, "peer1")
        self.place.add_address("lo", f"{ADDRESS}/32")
        self.keys = make_certificates(lab.directory / "keys")
        self.target = Target(
            *(self.place, {1: "port1"}, lab.supervisor),
            address=SERVER,
            options=self.options(),
        )
        self.controller = Controller(
            *("r1", self.place, self.configuration(self.keys), lab.directory, lab.supervisor),
            target=self.target.name,
        )

    def options(self) -> Sequence[str]:
        """Returns the switch's TLS options, as docs/security.md shows them."""
        words = ["--grpc-server-ssl", "--grpc-server-with-client-auth"]
        files = {"cacert": "ca.pem", "cert": "switch-1.pem", "key": "switch-1.key"}
        for option, file in files.items():
            words += [f"--grpc-server-{option}", str(self.keys / file)]
        return words

    def configuration(self, keys: Path) -> dict[str, Any]:
        """Returns a controller's configuration with the certificate and key from `keys`. The
        authority is the switch's own.
        """
        files = {"ca": self.keys / "ca.pem", "certificate": keys / "r1.pem", "key": keys / "r1.key"}
        return {
            "router": "r1",
            "switch": {
                "address": SERVER,
                "tls": {name: str(path) for name, path in files.items()},
            },
            "interfaces": [
                {"name": "eth1", "port": 1, "device": "port1", "mac": "02:00:00:00:01:01"}
            ],
        }


@pytest.fixture
def router(lab: Lab) -> Router:
    router = Router(lab)
    router.target.start()
    return router


def status(controller: Controller) -> Any:
    return controller.ask(command="show", what="status")["switch"]


def test_controller_and_switch_know_each_other(router: Router) -> None:
    router.controller.start()
    router.controller.wait_synced()
    assert status(router.controller)["transport"] == "mutual TLS"
    # The certificates are renewed, and the controller must use the new ones for the next
    # connection.
    renewed = make_certificates(router.keys.with_name("renewed"))
    router.target.stop()
    for file in renewed.iterdir():
        shutil.copy(file, router.keys)
    router.target.start()
    router.controller.wait_synced()


def test_a_controller_of_another_authority_never_writes(router: Router) -> None:
    stranger = make_certificates(router.keys.with_name("stranger"))
    config = router.controller.config
    config["switch"]["tls"] |= router.configuration(stranger)["switch"]["tls"]
    router.controller.launch()
    wait_until(router.controller.socket.exists, 20, "the controller's socket")
    wait_until(lambda: status(router.controller)["last_error"], 20, "the switch to refuse")
    assert not status(router.controller)["connected"]


def test_without_keys_the_configuration_is_refused(router: Router) -> None:
    del router.controller.config["switch"]["tls"]
    process = router.controller.launch()
    assert process.wait() == 1
    assert f"{SERVER} is not a loopback address" in process.log()


def test_a_client_without_a_certificate_is_refused(router: Router) -> None:
    done = router.place.run(
        *("openssl", "s_client", "-connect", SERVER, "-CAfile", str(router.keys / "ca.pem")),
        *("-alpn", "h2", "-verify_return_error", "-quiet"),
        stdin="",
        check=False,
    )
    assert done.returncode
    assert "unexpected eof" in done.stderr, done.stderr
    assert "alert" not in done.stderr, "a gRPC client would report corrupted data"
    # The message depends on the target.
    named = re.compile("without a certificate|did not return a certificate")
    wait_until(lambda: named.search(router.target.log()), 10, "the switch to name the fault")
