// SPDX-License-Identifier: Apache-2.0
//! Provides stacks of coroutines, and switches between these stacks.
//!
//! A packet in a lane yields several times, so each yield must be cheap. A switch goes directly from one lane to the
//! next, without passing through the stack of the lanes' caller. It resumes a stack by a jump, not by a return. The CPU
//! predicts the target of a return from the latest calls. These were made on another stack, so the prediction would be
//! wrong.
//!
//! A switch saves the callee-saved registers on the stack that it leaves. The macro [`leaving!`] defines functions that
//! make a switch. Such a function calls another function, `next`, to decide which stack is resumed. `next` gets the
//! saved stack pointer of the stack that is left, and returns that of the stack to resume.

use std::io;

use corosensei::stack::{DefaultStack, Stack};

/// Saved stack pointer of a suspended stack. The saved registers begin at this address.
pub(crate) type SavedStack = *mut u64;

/// A stack with a guard page below it.
pub(crate) struct Fiber(DefaultStack);

impl Fiber {
    /// Allocates a stack of `bytes` bytes.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        DefaultStack::new(bytes).map(Self)
    }

    /// Prepares the stack, so that resuming it calls `function` with `argument`. The stack's first frame lies `shift`
    /// bytes below the top of the stack. Returns the saved stack pointer.
    ///
    /// # Safety
    /// The previous contents of the stack are never resumed. `shift` is a multiple of 16 and leaves enough room.
    pub(crate) unsafe fn begin<T>(
        &self,
        shift: usize,
        function: extern "C" fn(*const T) -> !,
        argument: *const T,
    ) -> SavedStack {
        let mut registers = [0; WORDS];
        registers[FUNCTION] = function as usize as u64;
        registers[ARGUMENT] = argument.expose_provenance() as u64;
        registers[RETURN] = start as *const () as usize as u64;
        let saved = self.0.base().get() - shift - size_of_val(&registers);
        let saved = std::ptr::with_exposed_provenance_mut::<u64>(saved);
        // SAFETY: the stack extends downward from its base, and the caller promises that there is room. The base is a
        // multiple of 16, so words are aligned.
        unsafe { saved.copy_from_nonoverlapping(registers.as_ptr(), WORDS) };
        saved
    }
}

/// Defines a function that leaves the stack on which it is called. The defined function saves registers on that stack.
/// It passes its own argument and the saved stack pointer to `next`. Then it resumes the stack whose saved stack
/// pointer `next` returns.
#[cfg(target_arch = "x86_64")]
macro_rules! leaving {
    ($(#[$doc:meta])* $name:ident($argument:ty), next = $next:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(argument: *const $argument) {
            std::arch::naked_asm!(
                "push rbp",
                "push rbx",
                "push r12",
                "push r13",
                "push r14",
                "push r15",
                // The stack pointer must be a multiple of 16 at a call.
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
                "jmp rcx",
                next = sym $next
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! leaving {
    ($(#[$doc:meta])* $name:ident($argument:ty), next = $next:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(argument: *const $argument) {
            std::arch::naked_asm!(
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
                "br x30",
                next = sym $next
            )
        }
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
macro_rules! leaving {
    ($(#[$doc:meta])* $name:ident($argument:ty), next = $next:path) => {
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $name(argument: *const $argument) {
            $next(argument, std::ptr::null_mut());
            unreachable!("there are no lanes on this kind of processor");
        }
    };
}

pub(crate) use leaving;

#[cfg(target_arch = "x86_64")]
mod saved_registers {
    /// Number of saved words, from the saved stack pointer on.
    pub(crate) const WORDS: usize = 8;
    /// Index of r12, which holds the function that a new stack calls.
    pub(crate) const FUNCTION: usize = 4;
    /// Index of rbx, which holds the function's argument.
    pub(crate) const ARGUMENT: usize = 5;
    pub(crate) const RETURN: usize = 7;
}

/// First code on a new stack: calls the function given to [`Fiber::begin`] with its argument.
///
/// # Safety
/// Must not be called. Execution reaches this code only when a stack that [`Fiber::begin`] prepared is resumed.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    std::arch::naked_asm!("mov rdi, rbx", "call r12", "ud2")
}

#[cfg(target_arch = "aarch64")]
mod saved_registers {
    /// Number of saved words, from the saved stack pointer on.
    pub(crate) const WORDS: usize = 20;
    /// Index of x20, which holds the function that a new stack calls.
    pub(crate) const FUNCTION: usize = 1;
    /// Index of x19, which holds the function's argument.
    pub(crate) const ARGUMENT: usize = 0;
    /// Index of x30, which holds the address of the code at which the stack resumes.
    pub(crate) const RETURN: usize = 11;
}

/// First code on a new stack: calls the function given to [`Fiber::begin`] with its argument.
///
/// # Safety
/// Must not be called. Execution reaches this code only when a stack that [`Fiber::begin`] prepared is resumed.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn start() {
    std::arch::naked_asm!("mov x0, x19", "blr x20", "brk 1")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe extern "C" fn start() {
    unreachable!("there are no lanes on this kind of processor");
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod saved_registers {
    pub(crate) const WORDS: usize = 4;
    pub(crate) const FUNCTION: usize = 0;
    pub(crate) const ARGUMENT: usize = 1;
    pub(crate) const RETURN: usize = 2;
}

use saved_registers::{ARGUMENT, FUNCTION, RETURN, WORDS};
