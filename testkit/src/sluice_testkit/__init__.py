# SPDX-License-Identifier: Apache-2.0
"""Provides the common parts of all tests, demos and benchmarks of Sluice.

Layers. A module imports only from the lines below its own:

    pytest_plugin                            fixtures
    target  frr  controller  bench           programs under test; result files
    interposer                               holds messages between controller and switch
    capture  record  esp_engine              captures; a test double of the ESP engine
    namespaces  process                      network namespaces and processes
    wait  packet  owner  janitor  where      (almost) no dependencies

Promises:

- Names are unique to the running process, so parallel runs do not collide.
- Everything that a run creates is removed at its end. If the run is killed, `janitor` removes it.
  If the janitor is killed too, `owner.sweep` of the next run does.
- Nothing waits for a fixed time. Every wait is for a condition, with a deadline.

The package depends on the standard library and PyYAML only, because virtual environments with
conflicting packages import it. Exception: `p4runtime_proxy`, the program behind `interposer`, runs
in the controller's environment.
"""
