# SPDX-License-Identifier: Apache-2.0
"""Translates between the controller's entities and the pipeline.

Only this package contains P4 names. `schema` reads ids from P4Info. `codec` encodes entities as
P4Runtime updates and decodes them. `packets` builds the metadata of packet-outs. Depends on
entities, model and p4runtime.
"""
