# SPDX-License-Identifier: Apache-2.0
"""Provides P4Runtime's messages: finsy's generated modules, without the rest of finsy.

Importing `finsy` itself also imports its whole client, with gRPC and gNMI. The controller uses none
of these, and the import would make its start a sixth longer. During the start, no process answers
BFD, so the time matters. For this reason this package sets its own module path to finsy's folder of
generated modules.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

__all__ = ("p4i", "p4r")

if TYPE_CHECKING:
    from finsy.proto import p4i, p4r
else:
    _finsy = find_spec("finsy")
    if _finsy is None or not _finsy.submodule_search_locations:
        raise ImportError("finsy is not installed: run `make setup`")
    __path__ = [str(Path(_finsy.submodule_search_locations[0]) / "proto")]

    from sluice.p4messages.p4.config.v1 import p4info_pb2 as p4i
    from sluice.p4messages.p4.v1 import p4runtime_pb2 as p4r
