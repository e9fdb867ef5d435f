# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime session: arbitration, pipeline, batched writes with per-update errors, reads.

`messages` builds and takes apart the protobuf messages, `session` runs the exchange over
`sluice._native`. Knows P4Runtime, not this pipeline's names.
"""
