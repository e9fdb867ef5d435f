# SPDX-License-Identifier: Apache-2.0
"""Marks the wheel as built for this platform and every Python from 3.11 on.

`packaging/wheel` copies this file. cargo builds the native module beforehand; it is in the package
as data. `pip install` of a checkout does not use this file.
"""

from setuptools import Distribution, setup


class NativeDistribution(Distribution):
    """Holds a shared object that setuptools did not build."""

    def has_ext_modules(self) -> bool:
        """Returns True, so that the wheel is tagged for one platform."""
        return True


setup(distclass=NativeDistribution, options={"bdist_wheel": {"py_limited_api": "cp311"}})
