# SPDX-License-Identifier: Apache-2.0
"""Implements the local API: one JSON object per line over a Unix socket of mode 0660.

A request is ``{"command": "show", "what": "routes", ...}``. An answer is ``{"ok": true, "data":
...}`` or ``{"ok": false, "error": "what was wrong and what to do"}``. If further pages follow, the
answer also has ``next``, with the parameters of the next page. A connection may carry any number
of requests, which are answered in order. ``what`` is one of:

  ============  ====================================================================  ==============
  status        router, switch, FPM, pending and refused updates, problems            object
  interfaces    layer-3 interfaces with state, addresses, counters                    list
  routes        prefixes with action and live next hops; ``prefix``, ``limit``,
                ``after`` and ``after_vrf`` select                                    list
  route         the route to ``address``, and longer prefixes that are not installed  object
  nexthops      next hops and groups in use                                           object
  neighbors     neighbours on the router's links                                      list
  punts         packets sent to the CPU by reason, and how they were handled          object
  counters      drops by reason in the switch, and the controller's own counters      object
  metrics       the same counts as Prometheus text                                    string
  spd           for each SPD and direction, the rules and their hits; ``spd`` selects list
  flows         flows in the switch; ``spd``, ``limit`` select                        list
  flow-cache    for each SPD and direction, the cache's occupancy; ``spd`` selects    list
  sas           security associations; ``bundle`` selects                             list
  ============  ====================================================================  ==============

The commands ``spd check``, ``spd diff`` and ``spd commit`` have ``files``: a list of ``{"name":
..., "text": ...}``, one for each SPD. The commands ``flow-cache on``, ``flow-cache off`` and
``flow-cache clear`` apply to the SPD in ``spd``, or to all SPDs if the request has no ``spd``.
They answer as ``show flow-cache`` does.

`views` and `requests` make the data. `rows` makes long lists in slices. `server` and `client`
exchange the data over the socket. Addresses, prefixes and MAC addresses are text in the usual
notation. Times are in seconds.
"""
