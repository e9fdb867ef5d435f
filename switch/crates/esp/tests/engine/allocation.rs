// SPDX-License-Identifier: Apache-2.0
//! Tests that no packet allocates memory, neither in Rust nor in the C library. Every allocation of the process calls a
//! function of this file.

use std::cell::Cell;
use std::ffi::c_void;

use sluice_esp::Batch;
use sluice_esp::algorithm::ALGORITHMS;
use sluice_esp::batch::BATCH;
use sluice_esp::spec::Mode;

use crate::support::*;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

/// Replaces glibc's malloc.
#[unsafe(no_mangle)]
extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: this is glibc's own malloc, under the name that glibc provides for replacements of malloc.
    unsafe { __libc_malloc(size) }
}

/// Replaces glibc's calloc.
#[unsafe(no_mangle)]
extern "C" fn calloc(number: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: this is glibc's own calloc, under the name that glibc provides for replacements of calloc.
    unsafe { __libc_calloc(number, size) }
}

/// Replaces glibc's realloc.
///
/// # Safety
/// The caller must keep the rules of realloc(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: the caller keeps the rules of realloc(3), which glibc's function requires.
    unsafe { __libc_realloc(old, size) }
}

#[test]
fn no_packet_allocates() {
    let packet = ipv4("10.0.0.1", "10.0.0.2", 17, &[7; 500]);
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(packet.clone())));
    assert!(ALLOCATIONS.get() > before, "allocations are counted");
    for algorithm in ALGORITHMS {
        for esn in [false, true] {
            let mut pair = Pair::of(algorithm, Mode::Tunnel, esn);
            let encrypt = to_encrypt().frame_of(&packet);
            let mut sealed = vec![0; pair.out.len()];
            let decrypt = to_decrypt().frame_of(&pair.seal(&packet).unwrap());
            let template = decrypt[..28].to_vec();
            let mut frame = vec![0; pair.out.len()];
            let mut round = || {
                let length = pair.sender.process(&encrypt, 0, &mut sealed).unwrap();
                frame[..length].copy_from_slice(&sealed[..length]);
                frame[..28].copy_from_slice(&template);
                pair.receiver
                    .process(&frame[..length], 0, &mut pair.out)
                    .unwrap();
                let replayed = pair.receiver.process(&frame[..length], 0, &mut pair.out);
                assert!(replayed.is_err());
            };
            // The first use of the library's random generator allocates memory. This first round contains that use.
            round();
            let before = ALLOCATIONS.get();
            (0..1000).for_each(|_| round());
            assert_eq!(ALLOCATIONS.get(), before, "{algorithm:?} esn {esn}");
            let mut batch = Batch::default();
            let mut batches = |count| {
                for _ in 0..count {
                    batch.clear();
                    while batch.push(&encrypt[..], &[]) {}
                    pair.sender.process_batch(&mut batch, 0);
                    assert_eq!(batch.answers().count(), BATCH);
                }
            };
            // The first batch allocates memory for its lookups.
            batches(1);
            let before = ALLOCATIONS.get();
            batches(20);
            assert_eq!(ALLOCATIONS.get(), before, "{algorithm:?} esn {esn}");
        }
    }
}
