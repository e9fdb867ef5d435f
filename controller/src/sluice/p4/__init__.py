# SPDX-License-Identifier: Apache-2.0
"""The controller's view of the pipeline. This is the only package that contains P4 names.

`schema` reads ids from P4Info, `codec` encodes entities as P4Runtime updates and decodes them,
`packets` builds the metadata of packet-outs. Depends on entities, model and p4runtime.
"""
