// SPDX-License-Identifier: Apache-2.0
//! Control-plane state and the look-up structures that packets see.
