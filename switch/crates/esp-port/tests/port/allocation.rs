// SPDX-License-Identifier: Apache-2.0
//! Tests that serving a packet allocates no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use sluice_esp::Reservations;
use sluice_esp_port::port;
use sluice_ports::{PortCounters, Receiver, Transmitter};

use crate::support::*;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: delegates to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the rules of `alloc`, which the system's allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the rules of `dealloc`, which the system's allocator requires.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_packet_allocates() {
    let directory = tempfile::tempdir().unwrap();
    let reservations = Reservations::open(directory.path()).unwrap();
    let mut port = port(9, 1, &Arc::new(PortCounters::default())).unwrap();
    let engine = port.engine.clone();
    let adding = thread::spawn(move || {
        add(&engine, outbound(), &reservations);
        reservations
    });
    while !adding.is_finished() {
        port.receiver.receive(64, &mut |_, _| {});
    }
    let _reservations = adding.join().unwrap();
    let (frame, mut came) = (to_encrypt(1), 0);
    let mut round = |came: &mut u32| {
        for _ in 0..100 {
            port.transmitters[0].push(&frame);
        }
        port.transmitters[0].flush();
        while port.receiver.receive(256, &mut |_, _| *came += 1) != 0 {}
    };
    // The first round allocates the memory that the engine reuses for later batches.
    round(&mut came);
    let before = ALLOCATIONS.get();
    for _ in 0..200 {
        round(&mut came);
    }
    assert_eq!(came, 20_100);
    assert_eq!(ALLOCATIONS.get(), before);
}
