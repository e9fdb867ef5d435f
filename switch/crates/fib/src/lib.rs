// SPDX-License-Identifier: Apache-2.0
//! Longest-prefix-match look-up structures.
