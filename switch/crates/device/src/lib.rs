// SPDX-License-Identifier: Apache-2.0
//! The running switch: workers, replication, transactions.
