# SPDX-License-Identifier: Apache-2.0
"""Runs the services of a compose file from buildah's images, without a container engine.

A service gets these settings as with Docker:

- the image's file system, user and command;
- a PID, mount and UTS namespace;
- the bounding set of capabilities;
- read-only /proc/sys and /sys;
- the usual devices, and those that the service names;
- volumes, tmpfs and a read-only root;
- the network or PID namespace of another service;
- the order of `depends_on`, with health checks.

Seccomp and AppArmor profiles, cgroups, bridges and restarts are not implemented. A key of a service
that is not in KEYS is an error.
"""

import json
import os
import re
import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.process import Process, run
from sluice_testkit.wait import wait_until

# Supported keys of a service.
KEYS = """image command entrypoint environment env_file volumes tmpfs read_only cap_drop cap_add
devices network_mode pid sysctls security_opt privileged depends_on healthcheck restart init"""
# Capabilities that Docker grants without `cap_drop`.
GRANTED = """chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw
sys_chroot mknod audit_write setfcap"""
# Mounts the file systems below the root directory $1, then runs the command that is in the other
# arguments. $2: a file with a line for each mount (kind, source, target, options). $3: True if the
# root is read-only. Order: the root becomes read-only last, because the other mounts create
# directories in it.
INSIDE = r"""
root=$1 mounts=$2 only=$3; shift 3
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
mkdir -p dev/shm dev/pts dev/net
while read -r name major minor; do mknod -m 666 dev/$name c $major $minor; done << NODES
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
NODES
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
while read -r kind source target options; do
  case $kind in
    device) mknod -m 666 "./$target" c 10 200 ;;
    read-only) mount --bind "./$target" "./$target"; mount -o remount,bind,ro "./$target" ;;
    tmpfs) mkdir -p "./$target"; mount -t tmpfs -o mode=1777 tmpfs "./$target" ;;
    bind)
      mount --bind "$source" "./$target"
      test "$options" != ro || mount -o remount,bind,ro "./$target" ;;
  esac
done < "$mounts"
test "$only" != True || mount -o remount,bind,ro "$root"
cd "$root"
exec chroot . "$@"
"""


class Image:
    """The configuration of an image, and a writable copy of its file system.

    Call `remove` to delete the copy.
    """

    def __init__(self, name: str):
        self.name = name
        self.container = _buildah("from", "--pull-never", name)
        self.root = Path(_buildah("mount", self.container))
        inspected = json.loads(_buildah("inspect", "--type", "image", name))
        self.config: dict[str, Any] = inspected["Docker"]["config"]

    def remove(self) -> None:
        """Removes the copy of the file system."""
        _buildah("umount", self.container)
        _buildah("rm", self.container)


class Container:
    """The running container of a service."""

    def __init__(self, name: str, process: Process, prefix: list[str], environment: dict[str, str]):
        self.name = name
        self.process = process
        self._prefix = prefix
        self.environment = environment
        self.pid = 0
        wait_until(self._find, 20, f"container {name} to run")

    def _find(self) -> bool:
        self.process.check()
        children = [str(self.process.pid)]
        while children:  # search for a descendant with the root of the image
            found = run(["pgrep", "--parent", ",".join(children)], check=False).stdout.split()
            for pid in found:
                with suppress(FileNotFoundError):  # a helper that has ended
                    if os.readlink(f"/proc/{pid}/root") != "/":
                        self.pid = int(pid)
            if self.pid:
                return True
            children = found
        return False

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command in the container, as its user; returns standard output, then error."""
        done = run(self._argv(command), check=check, env=self.environment)
        return done.stdout + done.stderr

    def succeeds(self, *command: str) -> bool:
        """Returns whether a command in the container exits with 0."""
        return run(self._argv(command), check=False, env=self.environment).returncode == 0

    def _argv(self, command: Sequence[str]) -> list[str]:
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts"]
        return [*enter, "--root", "--wd", *self._prefix, *command]

    def status(self, program: str) -> dict[str, str]:
        """Returns the fields of /proc/PID/status of the process named `program`.

        Searches the first process of the container and its children. Raises LookupError if none of
        them has this name.
        """
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        for pid in (self.pid, *children):
            text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
            fields = dict(re.findall(r"^(\w+):\s+(.*)$", text, re.MULTILINE))
            if fields["Name"] == program:
                return fields
        raise LookupError(f"{self.name} runs no {program}")

    def stop(self) -> int:
        """Ends the container as `docker stop` does; returns its exit status."""
        os.kill(self.pid, signal.SIGTERM)
        return self.process.wait(20)


class Compose:
    """The services of a compose file. `host` stands for the host's network."""

    def __init__(self, file: Path, lab: Lab, host: Namespace | None = None, text: str = ""):
        self.directory = file.parent
        text = text or file.read_text(encoding="utf-8")
        filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
        self.services: dict[str, dict[str, Any]] = yaml.safe_load(filled)["services"]
        self.running: dict[str, Container] = {}
        self._images: list[Image] = []
        self._networks: dict[str, Namespace] = {} if host is None else {"host": host}
        self._lab = lab
        self._volumes = lab.directory / "volumes"
        for name, service in self.services.items():
            unknown = set(service) - set(KEYS.split())
            assert not unknown, f"{file}: service {name} has unsupported keys: {unknown}"

    def up(self) -> None:
        """Starts all services, each after its dependencies."""
        for name in self.services:
            self.start(name)

    def start(self, name: str) -> Container:
        """Starts a service after its dependencies. Returns its container."""
        if name in self.running:
            return self.running[name]
        service = self.services[name]
        for key in ("network_mode", "pid"):
            kind, _, other = service.get(key, "").partition(":")
            if kind == "service":
                self.start(other)
        for other, wanted in service.get("depends_on", {}).items():
            self.start(other)
            if wanted["condition"] == "service_healthy":
                wait_until(partial(self.healthy, other), 60, f"{other} to be healthy")
        self.running[name] = started = self._run(name, service)
        return started

    def healthy(self, name: str) -> bool:
        """Runs a service's health check and returns whether it succeeds."""
        self.running[name].process.check()
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return self.running[name].succeeds(*command)

    def network(self, name: str) -> Namespace:
        """Returns the network namespace of a service."""
        kind, _, other = self.services[name]["network_mode"].partition(":")
        if kind == "service":
            return self.network(other)
        if kind == "host":
            return self._networks["host"]
        assert kind == "none", kind
        if name not in self._networks:
            self._networks[name] = self._lab.namespace(name)
        return self._networks[name]

    def down(self) -> None:
        """Ends all services in reverse order of their start. Removes the copies of their images."""
        for container in reversed(self.running.values()):
            container.process.stop()
        for image in self._images:
            image.remove()

    def _run(self, name: str, service: dict[str, Any]) -> Container:
        image = Image(service["image"])
        self._images.append(image)
        network = self.network(name)
        for variable, value in service.get("sysctls", {}).items():
            network.run("sysctl", "-q", "-w", f"{variable}={value}")
        mounts = self._lab.directory / f"{name}.mounts"
        mounts.write_text("".join(f"{line}\n" for line in self._mounts(service, image)))
        prefix = _privileges(service, image)
        environment = self._environment(service, image)
        words = ["env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        command = [*prefix, *words, *_command(service, image)]
        inside = ["sh", "-ec", INSIDE, "sh", str(image.root), str(mounts)]
        inside += [str(service.get("read_only", False)), *command]
        argv = ["unshare", "--mount", "--propagation", "private", "--uts"]
        kind, _, other = service.get("pid", "").partition(":")
        if kind == "service":
            pid = self.running[other].pid
            argv = ["nsenter", f"--pid=/proc/{pid}/ns/pid", *argv, *inside]
        else:
            argv += ["--pid", "--fork", "--kill-child", *inside]
        process = self._lab.supervisor.start(name, network.argv(argv))
        return Container(name, process, prefix, environment)

    def _mounts(self, service: dict[str, Any], image: Image) -> list[str]:
        lines = []
        privileged = service.get("privileged", False)
        for device in ["/dev/net/tun"] if privileged else service.get("devices", []):
            assert device == "/dev/net/tun", device
            lines.append(f"device - {device}")
        for target in service.get("tmpfs", []):
            lines.append(f"tmpfs - {target}")
        for volume in service.get("volumes", []):
            source, target, *options = volume.split(":")
            lines.append(f"bind {self._source(source, target, image)} {target} {''.join(options)}")
        if "systempaths=unconfined" not in service.get("security_opt", []) and not privileged:
            lines.append("read-only - /proc/sys")
        return lines

    def _source(self, source: str, target: str, image: Image) -> Path:
        """Returns the host's path of a volume: a path in the checkout, or the directory of a named
        volume.

        A new named volume gets a copy of the image's files at `target`.
        """
        path = (self.directory / source).resolve()
        if not source.startswith("."):
            path = self._volumes / source
            if not path.exists():
                self._volumes.mkdir(exist_ok=True)
                run(["cp", "-a", f"{image.root}{target}", str(path)])
        inside = image.root / target.lstrip("/")
        if not inside.exists():
            inside.mkdir(parents=True) if path.is_dir() else inside.touch()
        return path

    def _environment(self, service: dict[str, Any], image: Image) -> dict[str, str]:
        pairs = dict(pair.split("=", 1) for pair in image.config.get("Env") or [])
        if file := service.get("env_file"):
            for line in (self.directory / file).read_text(encoding="utf-8").splitlines():
                if line and not line.startswith("#"):
                    key, _, value = line.partition("=")
                    pairs[key] = "".join(shlex.split(value))
        return pairs | {key: str(value) for key, value in service.get("environment", {}).items()}


def _privileges(service: dict[str, Any], image: Image) -> list[str]:
    """Returns the command prefix that changes from root to the user and capabilities of the
    service.
    """
    if service.get("privileged"):
        return []
    allowed = set() if service.get("cap_drop") == ["ALL"] else set(GRANTED.split())
    allowed |= {name.lower() for name in service.get("cap_add", [])}
    bounds = ",".join(["-all", *(f"+{name}" for name in sorted(allowed))])
    words = ["setpriv", f"--bounding-set={bounds}", "--inh-caps=-all"]
    user, _, group = image.config.get("User", "").partition(":")
    if user not in ("", "0"):
        words += [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    return words


def _command(service: dict[str, Any], image: Image) -> list[str]:
    entrypoint = service.get("entrypoint", image.config.get("Entrypoint") or [])
    own = [] if "entrypoint" in service else image.config.get("Cmd") or []
    command = service.get("command", own)
    return [*entrypoint, *(shlex.split(command) if isinstance(command, str) else command)]


def _buildah(*words: str) -> str:
    """Runs buildah and returns its output."""
    return run(["buildah", *words], timeout=300).stdout.strip()
