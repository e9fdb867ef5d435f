# SPDX-License-Identifier: Apache-2.0
"""Runs nft(8) commands in a namespace, through libnftables.

The router needs this library anyway, so the program nft need not be installed. Depends on
namespaces.
"""

import ctypes

from sluice_testkit.namespaces import Namespace

LIBRARY = "libnftables.so.1"


def nft(namespace: Namespace, commands: str) -> None:
    """Runs commands in the language of nft(8), either all or none. Raises OSError with the
    library's message.
    """
    namespace.inside(lambda: _run(commands))


def _run(commands: str) -> None:
    library = ctypes.CDLL(LIBRARY)
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    context = ctypes.c_void_p(library.nft_ctx_new(0))
    try:
        library.nft_ctx_buffer_error(context)
        if library.nft_run_cmd_from_buffer(context, commands.encode()) != 0:
            raise OSError(f"nft: {library.nft_ctx_get_error_buffer(context).decode().strip()}")
    finally:
        library.nft_ctx_free(context)
