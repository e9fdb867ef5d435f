// SPDX-License-Identifier: Apache-2.0
//! BMv2 JSON to a typed, checked program.
