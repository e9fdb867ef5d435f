// SPDX-License-Identifier: Apache-2.0
//! Packet ports: AF_PACKET, pcap files, memory.
