# SPDX-License-Identifier: Apache-2.0
"""Saves the record of policy on disk, which a restart loads.

The record holds:

- the committed rules;
- the numbers of the lists: ids, epochs, generations and rule ids;
- the SPDs whose flow cache an operator has turned on or off;
- the bundle that each bundle number means.

The record is saved before the switch receives a change. If the change fails, the record is saved
again with the state in force. Depends on spdstore and state.spd.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sluice.policy.spdstore import SpdStore, SpdStoreError, after_a_restart, would_resume
from sluice.state.spd import Commit, SpdRecord, SpdTable

log = logging.getLogger(__name__)

DISK_RETRY = 10.0
"""Seconds until a failed write of the record is retried."""

NO_CHANGE = Commit(())


class PolicyRecord:
    """Holds and saves the record.

    `is_changing` returns whether a change of policy is running. Then a retry waits, because the
    running change itself saves the record.
    """

    def __init__(
        self,
        store: SpdStore,
        table: SpdTable,
        loaded: SpdRecord,
        is_changing: Callable[[], bool],
    ) -> None:
        self._store = store
        self._table = table
        self._is_changing = is_changing
        self._closed = False
        self.path = store.path
        self.caches: dict[str, bool] = dict(loaded.caches)
        """Flow caches that an operator turned on or off, by SPD. All other flow caches follow the
        configuration."""
        self.bundle_names: dict[int, str] = loaded.bundles
        """The bundle that each number stands for in the switch, as far as it is known."""

    def save(self, commit: Commit = NO_CHANGE) -> None:
        """Saves the state that applies after a commit. Raises SpdStoreError."""
        self._store.save(self._after(commit))

    def prepare(self, commit: Commit) -> None:
        """Writes the long lists of a commit, so that `save` takes little time.

        May run in another thread, while no other method runs. Raises SpdStoreError.
        """
        self._store.prepare(self._table.record_with(commit))

    def save_again(self) -> None:
        """Saves the state in force after a failed change.

        A restart would otherwise load the failed change. If the disk cannot be written, retries
        every `DISK_RETRY` seconds.
        """
        try:
            self.save()
        except SpdStoreError as error:
            log.error("policy: a change failed: %s; %s", error, self.rules_after_restart())
            if not self._is_current():
                asyncio.get_running_loop().call_later(DISK_RETRY, self._retry)

    def close(self) -> None:
        """Ends retries of failed writes."""
        self._closed = True

    def rules_after_restart(self) -> str:
        """Returns a sentence that says which rules a restart would load."""
        return after_a_restart(self._store.on_disk, self._after(NO_CHANGE))

    def _after(self, commit: Commit) -> SpdRecord:
        record = self._table.record_with(commit)
        return record._replace(caches=dict(self.caches), bundles=self.bundle_names)

    def _is_current(self) -> bool:
        return would_resume(self._store.on_disk, self._after(NO_CHANGE))

    def _retry(self) -> None:
        if self._closed:
            return
        if self._is_changing():
            asyncio.get_running_loop().call_later(DISK_RETRY, self._retry)
        elif not self._is_current():
            self.save_again()
