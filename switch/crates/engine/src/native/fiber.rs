// SPDX-License-Identifier: Apache-2.0
//! Stacks, and going from one to another.
//!
//! A packet in a lane pauses several times, so what a pause costs is a part of what a packet costs. One switch leads
//! from lane to lane, with no function between them that would be returned to, and who has left a stack goes on by a
//! jump: a return would be predicted by the calls that the processor has seen, which were another stack's.
//!
//! Of who leaves, the registers are kept that a call keeps. Who goes on is decided by the functions that [`leave`] and
//! [`enter`] ask: both are told where the stack that is left can be gone on with, and give that of another.

use std::io;

use corosensei::stack::{DefaultStack, Stack};

use super::lane::{self, Common, Seat};

/// Where a stack that was left can be gone on with: its top.
pub(super) type Place = *mut u64;

/// A stack. The page below it cannot be touched.
pub(super) struct Fiber(DefaultStack);

impl Fiber {
    /// A stack of so many bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        DefaultStack::new(bytes).map(Self)
    }

    /// Makes it a stack that begins with a call of `function`, `shift` bytes below its top. Gives where it can be gone
    /// on with.
    ///
    /// # Safety
    /// Nobody goes on with what was on the stack. The shift is a multiple of 16, and leaves room enough.
    pub(super) unsafe fn begin<T>(
        &self,
        shift: usize,
        function: extern "C" fn(*const T) -> !,
        argument: *const T,
    ) -> Place {
        let mut kept = [0; KEPT];
        kept[FUNCTION] = function as usize as u64;
        kept[ARGUMENT] = argument.expose_provenance() as u64;
        kept[GO_ON] = start as *const () as usize as u64;
        let place = self.0.base().get() - shift - size_of_val(&kept);
        let place = std::ptr::with_exposed_provenance_mut::<u64>(place);
        // SAFETY: below its base lies the stack, in which is room by the caller's promise; the base is at a multiple
        // of 16, so words have their alignment.
        unsafe { place.copy_from_nonoverlapping(kept.as_ptr(), KEPT) };
        place
    }
}

/// Makes the functions that leave a stack: `$code` keeps registers on it, asks with who leaves and the stack's place, and
/// goes on with what that gives.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! leaving {
    ($($code:literal),*) => {
        /// Leaves a lane's stack until somebody goes on with it.
        ///
        /// # Safety
        /// It is the stack of this seat's lane, whose batch is under way.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn leave(seat: *const Seat) {
            std::arch::naked_asm!($($code),*, next = sym lane::next)
        }

        /// Leaves the stack of who has lanes run, until they have.
        ///
        /// # Safety
        /// A lane is to run, and the stacks of all that are can be gone on with.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn enter(common: *const Common) {
            std::arch::naked_asm!($($code),*, next = sym lane::first)
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod kept {
    /// Words that are kept, from a stack's place on.
    pub(super) const KEPT: usize = 8;
    /// r12
    pub(super) const FUNCTION: usize = 4;
    /// rbx
    pub(super) const ARGUMENT: usize = 5;
    pub(super) const GO_ON: usize = 7;
}

#[cfg(target_arch = "x86_64")]
leaving!(
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    // Calls are made at a multiple of 16.
    "sub rsp, 8",
    "mov rsi, rsp",
    "call {next}",
    "lea rsp, [rax + 8]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "pop rcx",
    "jmp rcx"
);

/// The bottom of a stack.
///
/// # Safety
/// Gone on with only where [`Fiber::begin`] says, never called.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    std::arch::naked_asm!("mov rdi, rbx", "call r12", "ud2")
}

#[cfg(target_arch = "aarch64")]
mod kept {
    /// Words that are kept, from a stack's place on.
    pub(super) const KEPT: usize = 20;
    /// x20
    pub(super) const FUNCTION: usize = 1;
    /// x19
    pub(super) const ARGUMENT: usize = 0;
    /// x30
    pub(super) const GO_ON: usize = 11;
}

#[cfg(target_arch = "aarch64")]
leaving!(
    "sub sp, sp, 160",
    "stp x19, x20, [sp]",
    "stp x21, x22, [sp, 16]",
    "stp x23, x24, [sp, 32]",
    "stp x25, x26, [sp, 48]",
    "stp x27, x28, [sp, 64]",
    "stp x29, x30, [sp, 80]",
    "stp d8, d9, [sp, 96]",
    "stp d10, d11, [sp, 112]",
    "stp d12, d13, [sp, 128]",
    "stp d14, d15, [sp, 144]",
    "mov x1, sp",
    "bl {next}",
    "mov sp, x0",
    "ldp x19, x20, [sp]",
    "ldp x21, x22, [sp, 16]",
    "ldp x23, x24, [sp, 32]",
    "ldp x25, x26, [sp, 48]",
    "ldp x27, x28, [sp, 64]",
    "ldp x29, x30, [sp, 80]",
    "ldp d8, d9, [sp, 96]",
    "ldp d10, d11, [sp, 112]",
    "ldp d12, d13, [sp, 128]",
    "ldp d14, d15, [sp, 144]",
    "add sp, sp, 160",
    "br x30"
);

/// The bottom of a stack.
///
/// # Safety
/// Gone on with only where [`Fiber::begin`] says, never called.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    std::arch::naked_asm!("mov x0, x19", "blr x20", "brk 1")
}

/// Where no machine code is made ([`NativeError`](super::NativeError)) there are no lanes.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod none {
    use super::{Common, Seat, lane};

    pub(in crate::native) unsafe extern "C" fn leave(seat: *const Seat) {
        lane::next(seat, std::ptr::null_mut());
        unreachable!("there are no lanes on this kind of processor");
    }

    pub(in crate::native) unsafe extern "C" fn enter(common: *const Common) {
        lane::first(common, std::ptr::null_mut());
        unreachable!("there are no lanes on this kind of processor");
    }

    pub(super) unsafe extern "C" fn start() {
        unreachable!("there are no lanes on this kind of processor");
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod kept {
    pub(super) const KEPT: usize = 4;
    pub(super) const FUNCTION: usize = 0;
    pub(super) const ARGUMENT: usize = 1;
    pub(super) const GO_ON: usize = 2;
}

use kept::{ARGUMENT, FUNCTION, GO_ON, KEPT};
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use none::start;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) use none::{enter, leave};
