// SPDX-License-Identifier: Apache-2.0
//
// Defines for TNA (Tofino 1) the macros, headers and sizes that the shared files use.

#ifndef SLUICE_ARCH_P4
#define SLUICE_ARCH_P4

#include <core.p4>
#include <tna.p4>

#define DIRECT_COUNTER(name) DirectCounter<bit<64>>(CounterType_t.PACKETS_AND_BYTES) name
#define INDEXED_COUNTER(name, index_t, size) Counter<bit<64>, index_t>(size, CounterType_t.PACKETS_AND_BYTES) name

#define IDLE_TIMEOUT idle_timeout = true;

#define ARCH_PARSER_LOCALS Checksum() ipv4_checksum;
// Verifies the checksum over the fixed header. With options the result is
// meaningless, so main.p4 clears it.
#define CHECK_IPV4_CHECKSUM                                     \
    ipv4_checksum.add(hdr.ipv4);                                \
    meta.checksum_error = (bit<1>)ipv4_checksum.verify();

// The parser cannot skip a variable length. So IPv4 options stay in the payload, and
// packets with options are punted. The parser walks only IPv6 extension headers of
// eight bytes. A fragment header always has eight bytes.
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

// Capacities. The tables are in TCAM and SRAM, so they are far smaller than in software.
#define IPV4_FIB_SIZE 12288
#define IPV6_FIB_SIZE 4096
#define L3_INTERFACES 4096
#define IPV4_FLOWS 65536
#define IPV6_FLOWS 16384
#define IPV4_RULES 512            // entries, not rules
#define IPV6_RULES 128
#define RULES 2048                // size of the rules' counters
#define MULTIPATH_GROUP_SIZE 64

#endif
