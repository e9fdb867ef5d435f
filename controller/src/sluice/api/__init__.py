# SPDX-License-Identifier: Apache-2.0
"""The local API: JSON, one object a line, over a Unix socket that only its group may use (0660).

A request is ``{"command": "show", "what": "routes", ...}``, an answer ``{"ok": true, "data": ...}``
or ``{"ok": false, "error": "what was wrong and what to do"}``, with ``next`` where it is a page and
there is more. A connection may carry any number of
requests, answered in their order. ``what`` is one of

  ============  ====================================================================  ==============
  status        router, switch, FPM, what is pending and what was refused             object
  interfaces    layer-3 interfaces with state, addresses, counters                    list
  routes        prefixes with action and live next hops; ``prefix``, ``limit``,
                ``after`` and ``after_vrf`` choose                                    list
  nexthops      next hops and groups in use                                           object
  neighbors     neighbours on the router's links                                      list
  punts         packets sent to the CPU by reason, and what became of them            object
  counters      drops by reason in the switch, and the controller's own counters      object
  metrics       the same counts as Prometheus text                                    string
  spd           an item for each list with its rules and counts; ``spd`` chooses      list
  flows         flows in the switch; ``spd``, ``limit`` choose                        list
  flow-cache    an item for each list: how full its cache is; ``spd`` chooses         list
  ============  ====================================================================  ==============

Other commands are ``spd check``, ``spd diff`` and ``spd commit`` with ``files``, a list of
``{"name": ..., "text": ...}``, one for each SPD; and ``flow-cache on``, ``flow-cache off`` and
``flow-cache clear`` with ``spd`` or for all SPDs, answered as ``show flow-cache`` is.

`views` and `requests` make the data, long lists as `rows`; `server` answers, `client` asks.
Addresses, prefixes and MAC addresses are text as people write them; times are seconds.
"""
