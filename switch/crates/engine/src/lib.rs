// SPDX-License-Identifier: Apache-2.0
//! The interpreter for loaded programs.
