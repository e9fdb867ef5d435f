// SPDX-License-Identifier: Apache-2.0
//
// Defines the controls that are empty in most of these programs. Include this file after headers_t and meta_t.

control no_verify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control no_update(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control no_egress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t std) {
    apply { }
}
