// SPDX-License-Identifier: Apache-2.0
//! Queues commands to a worker. The worker executes them between two batches.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use sluice_engine::{Congestion, Profile};
use sluice_native::Code;
use sluice_ports::poller::Waker;
use sluice_ports::{PortId, Receiver, Transmitter};

use crate::counters::EngineCounters;
use crate::dry_run::DryRun;
use crate::levels::PortLevels;
use crate::running::Running;

/// A command that a worker executes between two batches.
pub(crate) enum Command {
    /// Runs this program, or no program.
    Load(Option<Box<Running>>),
    /// Takes over the halves of a port, whose queues have these settings and fill levels.
    AddPort(
        PortId,
        Option<Box<dyn Receiver>>,
        Box<dyn Transmitter>,
        Arc<PortLevels>,
    ),
    /// Drops the halves of a port.
    RemovePort(PortId),
    /// Reads the queue settings again.
    QueuesChanged,
    /// Adds the counters of the running program's engine to this map.
    Report(Arc<Mutex<EngineCounters>>),
    /// Profiles one packet in N from now on. If native code runs the program, measured packets run this instrumented
    /// code.
    BeginProfile(NonZeroU32, Option<Arc<Code>>),
    /// Ends profiling, and adds the results to this profile.
    EndProfile(Arc<Mutex<Option<Profile>>>),
    /// Runs a packet without side effects.
    DryRun(Arc<Mutex<DryRun>>),
    /// Ends the thread.
    Stop,
}

/// The queue of commands to a worker.
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    pending: AtomicBool,
    done: Condvar,
    pub(crate) waker: Waker,
    /// Whether the worker's packets may have to wait because a port is congested.
    pub(crate) congestion: Congestion,
}

#[derive(Default)]
struct MailboxState {
    commands: VecDeque<Command>,
    sent: u64,
    done: u64,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let waker = Waker::new()?;
        let (state, pending) = (Mutex::default(), AtomicBool::default());
        Ok(Arc::new(Self {
            state,
            pending,
            done: Condvar::new(),
            waker,
            congestion: Congestion::default(),
        }))
    }

    /// Sends a command. Returns its number for [`Self::wait`].
    pub(crate) fn send(&self, command: Command) -> u64 {
        let mut state = self.state.lock();
        state.commands.push_back(command);
        state.sent += 1;
        self.pending.store(true, Ordering::Release);
        let number = state.sent;
        drop(state);
        self.waker.wake();
        number
    }

    /// Waits until a command has been executed, or the worker has ended.
    pub(crate) fn wait(&self, number: u64) {
        let mut state = self.state.lock();
        while state.done < number && !state.closed {
            self.done.wait(&mut state);
        }
    }

    /// Returns whether the worker has ended.
    pub(crate) fn closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Returns whether commands are waiting.
    pub(crate) fn pending(&self) -> bool {
        self.pending.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Option<Command> {
        let mut state = self.state.lock();
        let command = state.commands.pop_front();
        self.pending
            .store(!state.commands.is_empty(), Ordering::Release);
        command
    }

    pub(crate) fn finish(&self) {
        self.state.lock().done += 1;
        self.done.notify_all();
    }
}

/// Closes the mailbox when the worker's thread ends for any reason, so that callers do not wait for it.
pub(crate) struct CloseOnDrop(pub(crate) Arc<Mailbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.done.notify_all();
    }
}
