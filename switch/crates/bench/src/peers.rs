// SPDX-License-Identifier: Apache-2.0
//! Provides the structures of other projects as contenders, each used as its documentation recommends.

pub(crate) mod dpdk;
pub(crate) mod dpdk_acl;
pub(crate) mod dpdk_hash;
pub(crate) mod dpdk_lpm;
pub(crate) mod dpdk_updates;
pub(crate) mod hashbrown;
pub(crate) mod prefix_trie;
