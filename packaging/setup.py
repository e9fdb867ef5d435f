# SPDX-License-Identifier: Apache-2.0
"""Marks the wheel as one for this platform and every Python from 3.11 on; `wheel` copies it.

The native module is built by cargo beforehand and lies in the package as data. A checkout is
installed without this file.
"""

from setuptools import Distribution, setup


class NativeDistribution(Distribution):
    """Holds a shared object that setuptools did not build."""

    def has_ext_modules(self) -> bool:
        """Returns True: the wheel is not for every platform."""
        return True


setup(distclass=NativeDistribution, options={"bdist_wheel": {"py_limited_api": "cp311"}})
