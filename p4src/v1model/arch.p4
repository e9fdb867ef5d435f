// SPDX-License-Identifier: Apache-2.0
//
// Defines for v1model the macros, headers and sizes that the shared files use.

#ifndef SLUICE_ARCH_P4
#define SLUICE_ARCH_P4

#define V1MODEL_VERSION 20200408
#include <core.p4>
#include <v1model.p4>

#define DIRECT_COUNTER(name) direct_counter(CounterType.packets_and_bytes) name
#define INDEXED_COUNTER(name, index_t, size) counter<index_t>(size, CounterType.packets_and_bytes) name

#define IDLE_TIMEOUT support_timeout = true;

// A separate control verifies checksums (v1model_verify_checksum in main.p4).
#define CHECK_IPV4_CHECKSUM
#define ARCH_PARSER_LOCALS

// One IPv4 option (RFC 791, 3.1): its kind and its other bytes. The body of an
// end-of-list option holds the padding.
header ipv4_option_t {
    bit<8>      kind;
    varbit<312> body;
}

// One IPv6 extension header. Fragment headers are held in the same form.
header ipv6_extension_t {
    bit<8>        next_header;
    bit<8>        length;
    varbit<16368> body;
}

#define IPV4_OPTIONS 10
#define IPV6_EXTENSIONS 6

// Capacities.
#define IPV4_FIB_SIZE 2097152
#define IPV6_FIB_SIZE 1048576
#define L3_INTERFACES 4096
#define IPV4_FLOWS 1048576
#define IPV6_FLOWS 1048576
#define IPV4_RULES 131072           // entries, not rules
#define IPV6_RULES 131072
#define RULES 1048576              // size of the rules' counters
#define MULTIPATH_GROUP_SIZE 64

#endif
