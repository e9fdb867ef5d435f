# SPDX-License-Identifier: Apache-2.0
"""Marks the wheel as one for this platform and for every Python from 3.11 on.

cargo builds the native module before the wheel is built, and the package contains the module as
data. The script `wheel` copies this file into the package's sources. An installation from a
checkout does not use this file.
"""

from setuptools import Distribution, setup


class NativeDistribution(Distribution):
    """A package that contains a shared object, which setuptools did not build."""

    def has_ext_modules(self) -> bool:
        """Returns True, so that the wheel is marked for this platform only."""
        return True


setup(distclass=NativeDistribution, options={"bdist_wheel": {"py_limited_api": "cp311"}})
