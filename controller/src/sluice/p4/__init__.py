# SPDX-License-Identifier: Apache-2.0
"""The pipeline as the controller sees it: the only package that spells P4 names.

`schema` reads the numbers from P4Info, `codec` turns entities into P4Runtime updates and back,
`packets` builds the metadata of packet-outs. Depends on entities, model and p4runtime.
"""
