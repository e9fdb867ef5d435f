# SPDX-License-Identifier: Apache-2.0
"""Manages all mirrored SPDs. Each SPD mirrors the kernel's IPsec databases in one network
namespace.

Depends on kernel_mirror, policy and associations.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from sluice.associations import Associations
from sluice.config import Config
from sluice.inputs import XfrmInput
from sluice.kernel_mirror import REPORTING, BundleDefaults, KernelMirror
from sluice.model import Address, PuntedPacket
from sluice.policy import entities as policy_entities
from sluice.policy.enforcement import MirroredSpd, Policy
from sluice.scheduler import Inlet
from sluice.task_slices import run_until_one_fails


class KernelMirrors:
    """Holds all mirrors of a router.

    `kernels` maps the name of each mirrored SPD to its kernel. `own` returns this router's
    addresses in a VRF.
    """

    def __init__(
        self,
        config: Config,
        kernels: Mapping[str, XfrmInput],
        own: Callable[[int], Iterable[Address]],
        clock: Callable[[], float],
    ) -> None:
        engines = tuple(one.id for one in config.policy.engines if one.admin is not None)
        path_mtus = {one.name: one.path_mtu for one in config.policy.spds}
        self._mirrors = {
            spd: KernelMirror(
                spd,
                kernel,
                BundleDefaults(policy_entities.vrf_of(config, spd), engines, path_mtus[spd]),
                own,
                clock,
            )
            for spd, kernel in kernels.items()
        }
        self._policy: Policy | None = None
        self._associations: Associations | None = None

    def __bool__(self) -> bool:
        return bool(self._mirrors)

    @property
    def mirrored(self) -> dict[str, MirroredSpd]:
        """The rules and bundles of each SPD at start."""
        return {spd: one.mirrored for spd, one in self._mirrors.items()}

    @property
    def counters(self) -> Mapping[str, int]:
        """Counters summed over all mirrors. Names of the kernels' counters begin with `kernel:
        `."""
        counts: Counter[str] = Counter()
        for one in self._mirrors.values():
            counts.update(one.counters)
            counts.update({f"kernel: {name}": count for name, count in one.kernel.counters.items()})
        return counts

    def problems(self) -> Iterator[str]:
        """Yields one sentence for each reason why policies or SAs of the kernel are not in
        force."""
        for one in self._mirrors.values():
            yield from one.problems()

    def inlets(self) -> Iterator[Inlet]:
        """Yields the inlets that read the kernels' notifications."""
        for spd, one in self._mirrors.items():
            yield Inlet(f"policies of {spd}", 1, one.drain, one.kernel.fileno())

    def attach(self, policy: Policy, associations: Associations) -> None:
        """Connects the mirrors to `policy`, which they write, and to `associations`, which receive
        their SAs."""
        self._policy, self._associations = policy, associations
        for one in self._mirrors.values():
            one.on_states = self._pass_on

    def addresses_changed(self) -> None:
        """Mirrors the kernels' states again after a change of this router's addresses, which
        determine whether a state is inbound or outbound."""
        for one in self._mirrors.values():
            if self._policy is not None:
                one.mirror_states(self._policy)

    def _pass_on(self) -> None:
        if self._associations is not None:
            mirrors = self._mirrors.values()
            sas = [each.association for one in mirrors for each in one.states]
            self._associations.set_kernel_sas(sas, [spec for one in mirrors for spec in one.specs])

    async def caught_up(self) -> None:
        """Waits until all changes that were made in the kernels so far are in force, or have
        failed."""
        await asyncio.gather(*(one.caught_up() for one in self._mirrors.values()))
        if self._associations is not None:
            await self._associations.wait_for_kernel_sas()

    async def run(self) -> None:
        """Runs the mirrors and reports usage to the kernels, until cancelled."""
        if not self._mirrors or self._policy is None:
            await asyncio.Event().wait()
            return
        mirroring = [one.run(self._policy) for one in self._mirrors.values()]
        await run_until_one_fails([*mirroring, self._report()])

    async def _report(self) -> None:
        """Reports the SAs' usage to the kernels every `REPORTING` seconds."""
        while True:
            await asyncio.sleep(REPORTING)
            if self._associations is not None:
                reports = [*self._associations.table.reports()]
                for one in self._mirrors.values():
                    one.report(reports)

    def acquire(self, packet: PuntedPacket, now: float) -> None:
        """Requests an SA for a packet dropped as NO_SA, if the packet's bundle belongs to a
        mirrored SPD."""
        if self._policy is None:
            return
        bundle = self._policy.numbers.names.get(packet.sa_bundle)
        for one in self._mirrors.values():
            if bundle is not None and bundle in one.rules.bundles:
                one.acquire(packet, bundle, now)
