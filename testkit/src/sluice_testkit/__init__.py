# SPDX-License-Identifier: Apache-2.0
"""The common base of all tests, demos and benchmarks of Sluice.

Layers, dependencies downward only:

    pytest_plugin                            fixtures
    target  frr  controller  bench           things under test, and results
    interposer                               between a controller and its switch
    capture  record  esp_engine              captures, and the engine's double
    namespaces  process                      where they run
    wait  packet  owner  janitor  where      (almost) no dependencies

Promises: names are unique to the running process, so that runs side by side
do not collide; all that a run made is removed with it, also when the run is
killed (janitor) or its janitor too (owner.sweep); nothing waits for time to
pass, everything waits for a condition with a deadline.

Only the standard library and PyYAML, because it is imported from virtual
environments that agree on little else. The interposer's other half,
p4runtime_proxy, is a program that runs in the controller's environment.
"""
