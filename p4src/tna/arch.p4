// SPDX-License-Identifier: Apache-2.0
//
// TNA (Tofino 1): what the shared files take from the architecture.

#ifndef SLUICE_ARCH_P4
#define SLUICE_ARCH_P4

#include <core.p4>
#include <tna.p4>

#define DIRECT_COUNTER(name) DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) name
#define INDEXED_COUNTER(name, index_t, size) Counter<bit<64>, index_t>(size, CounterType_t.PACKETS_AND_BYTES) name

#define IDLE_TIMEOUT idle_timeout = true;

#define ARCH_PARSER_LOCALS Checksum() ipv4_checksum;
// Over the fixed header, in the state that extracts it; with options it says
// nothing (main.p4).
#define CHECK_IPV4_CHECKSUM                                     \
    ipv4_checksum.add(hdr.ipv4);                                \
    meta.checksum_error = (bit<1>)ipv4_checksum.verify();

// The parser cannot skip by a length that it reads: IPv4 options stay in the
// payload and are punted, IPv6 extension headers are walked while they are of
// eight bytes, which the fragment header always is.
header ipv4_option_t {
    bit<32> word;
}

header ipv6_extension_t {
    bit<8>  next_header;
    bit<8>  length;
    bit<48> body;
}

#define IPV4_OPTIONS 1
#define IPV6_EXTENSIONS 2

// Capacity: placed in TCAM and SRAM, so far below what the software targets hold.
#define IPV4_FIB_SIZE 12288
#define IPV6_FIB_SIZE 4096
#define L3_INTERFACES 4096
#define IPV4_FLOWS 65536
#define IPV6_FLOWS 16384
#define RULES 2048                // counters, by rule id
#define MULTIPATH_GROUP_SIZE 64

#endif
