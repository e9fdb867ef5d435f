// SPDX-License-Identifier: Apache-2.0
//! Manages the TAPs of a router. One thread reads the host's frames and queues them for Python.
//!
//! The thread waits with epoll. It reads a limited number of frames from each ready interface in turn, so that a
//! busy interface cannot starve the others. It queues the frames that the fast path does not handle. Each interface
//! has its own share of the queue. Frames that exceed the share are dropped, and counted for that interface. Frames
//! to the host are not queued: the caller writes them itself, without blocking.
//!
//! A set can *rest* until the fast path has a switch. All queues of a resting set are detached, so it receives no
//! frames. The previous controller may have left a stand-in, a process that forwards the host's packets while no
//! controller does. While the set rests, the stand-in receives the host's frames.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::thread::{self, JoinHandle};

use super::device::{Mac, Tap};
use crate::fast_path::{FastPath, Host};
use crate::mailbox::{Contents, Mailbox, lock};

/// Maximum number of frames that are read from one interface before the next interface has its turn.
const SLICE: usize = 64;
/// Maximum size in bytes of a frame from a TAP: 64 KiB of packet, an Ethernet header and a VLAN tag.
const FRAME_MAX: usize = 65536 + 18;
/// epoll data that mark the stop event. An ifindex is never 0, so they differ from the data of every interface.
const STOP: u64 = 0;

/// A frame with the ifindex of its interface.
pub type TapFrame = (u32, Box<[u8]>);

#[derive(Debug, Default)]
struct Inbox {
    frames: VecDeque<TapFrame>,
    /// Number of queued frames, by interface.
    shares: HashMap<u32, usize>,
}

impl Contents for Inbox {
    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// Counters of one interface. The values never decrease.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames that the host sent, including those that were dropped.
    pub rx_frames: AtomicU64,
    /// Bytes of the frames in `rx_frames`.
    pub rx_bytes: AtomicU64,
    /// Frames of the host that were dropped because Python fetched frames too slowly.
    pub rx_dropped: AtomicU64,
    /// Failed reads. A read fails if the interface was deleted. After a failed read, the interface is not read any
    /// more.
    pub rx_errors: AtomicU64,
    /// Frames sent to the host.
    pub tx_frames: AtomicU64,
    /// Bytes of the frames in `tx_frames`.
    pub tx_bytes: AtomicU64,
    /// Frames to the host that were dropped because the interface was down.
    pub tx_dropped_down: AtomicU64,
    /// Frames to the host that were dropped because the interface's queue was full.
    pub tx_dropped_full: AtomicU64,
    /// Frames that the kernel refused for another reason, such as the size.
    pub tx_errors: AtomicU64,
}

#[derive(Debug)]
struct CountedTap {
    tap: Tap,
    counters: Counters,
}

#[derive(Debug)]
struct Shared {
    mailbox: Mailbox<Inbox>,
    members: RwLock<BTreeMap<u32, CountedTap>>,
    queue_limit: usize,
    epoll: OwnedFd,
    tx_unknown_interface: AtomicU64,
    fast_path: Option<Arc<FastPath>>,
    /// Whether the set rests, that is, all queues are detached. The lock is held while queues are attached or
    /// detached.
    rests: Mutex<bool>,
}

/// A set of TAPs with its reading thread. Dropping the set removes the TAPs and ends the thread.
#[derive(Debug)]
pub struct TapSet {
    shared: Arc<Shared>,
    stop: Mailbox<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Becomes true when the reading thread must end.
#[derive(Debug)]
struct Stop(bool);

impl Contents for Stop {
    fn is_empty(&self) -> bool {
        !self.0
    }
}

impl TapSet {
    /// Creates an empty set. It queues at most `queue_limit` frames of each interface for Python; frames that
    /// `fast_path` handles do not count. If `rests` is true, the set rests until `fast_path` has a switch.
    ///
    /// # Errors
    /// The kernel's error if no descriptor or thread is available.
    pub fn new(
        queue_limit: usize,
        fast_path: Option<Arc<FastPath>>,
        rests: bool,
    ) -> io::Result<Self> {
        // SAFETY: epoll_create1 takes no pointers; the result is checked before it is used.
        let raw = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `raw` was just opened and has no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
        let shared = Arc::new(Shared {
            mailbox: Mailbox::new(Inbox::default())?,
            members: RwLock::default(),
            queue_limit,
            epoll,
            tx_unknown_interface: AtomicU64::new(0),
            fast_path,
            rests: Mutex::new(rests),
        });
        if let Some(fast_path) = &shared.fast_path {
            let host: Weak<Shared> = Arc::downgrade(&shared);
            fast_path.attach_host(host);
        }
        let stop = Mailbox::new(Stop(false))?;
        shared.watch(stop.descriptor(), STOP)?;
        let reader = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("sluice-tap".to_owned())
            .spawn(move || reader.run())?;
        Ok(Self {
            shared,
            stop,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Adds a TAP (see [`Tap::create`]). Returns the TAP's index in this set: its ifindex plus `base`. TAPs of
    /// different network namespaces can have the same ifindex; different bases keep their indexes apart.
    ///
    /// # Errors
    /// Errors of [`Tap::create`]. `NotConnected` if the set is closed. `InvalidInput` if the sum
    /// overflows.
    pub fn add(
        &self,
        name: &str,
        mtu: u32,
        mac: Mac,
        persist: bool,
        base: u32,
        queue: Option<OwnedFd>,
    ) -> io::Result<u32> {
        self.check_open()?;
        self.insert(Tap::create(name, mtu, mac, persist, queue)?, base)
    }

    /// Adds an existing TAP. `queue` is an open queue of this TAP (see [`Tap::join`]).
    ///
    /// # Errors
    /// Errors of [`Tap::join`]. `NotConnected` if the set is closed.
    pub fn join(&self, name: &str, index: u32, queue: OwnedFd) -> io::Result<()> {
        self.check_open()?;
        self.insert(Tap::join(name, index, queue)?, 0).map(drop)
    }

    fn check_open(&self) -> io::Result<()> {
        if lock(&self.thread).is_none() {
            return Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "the TapSet is closed",
            ));
        }
        Ok(())
    }

    fn insert(&self, tap: Tap, base: u32) -> io::Result<u32> {
        let rests = lock(&self.shared.rests);
        if *rests {
            tap.attach(false)?;
        }
        let descriptor = tap.as_raw_fd();
        let index = tap
            .index()
            .checked_add(base)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let member = CountedTap {
            tap,
            counters: Counters::default(),
        };
        // If the set already has a TAP with this index, another program has deleted that TAP and the kernel has
        // reused the ifindex. The old TAP's descriptor is useless.
        drop(self.shared.write_members().insert(index, member));
        if !*rests {
            self.shared.watch(descriptor, u64::from(index))?;
        }
        Ok(index)
    }

    /// Sets the carrier of one TAP.
    ///
    /// # Errors
    /// `NotFound` if the TAP is not in the set; otherwise the kernel's error.
    pub fn set_carrier(&self, index: u32, up: bool) -> io::Result<()> {
        let rests = lock(&self.shared.rests);
        self.with(index, |tap| {
            if !*rests {
                return tap.set_carrier(up);
            }
            // If the carrier is already up, returns without attaching the queue, because attaching a queue makes the
            // kernel walk its whole IPv6 FIB.
            if up && tap.is_running()? {
                return Ok(());
            }
            // The kernel lets only an attached queue set the carrier.
            tap.attach(true)?;
            let result = tap.set_carrier(up);
            tap.attach(false)?;
            result
        })
    }

    /// Removes a TAP. Returns false if the TAP is not in the set. Frames that were read before stay queued.
    pub fn remove(&self, index: u32) -> bool {
        let rests = lock(&self.shared.rests);
        let Some(member) = self.shared.write_members().remove(&index) else {
            return false;
        };
        self.shared.let_go(&member, !*rests);
        true
    }

    /// Calls `action` with a TAP of the set.
    ///
    /// # Errors
    /// `NotFound` if the TAP is not in the set. Otherwise errors of `action`.
    pub fn with(&self, index: u32, action: impl FnOnce(&Tap) -> io::Result<()>) -> io::Result<()> {
        match self.shared.members().get(&index) {
            Some(member) => action(&member.tap),
            None => {
                let message = format!("interface {index} is not in this TapSet");
                Err(io::Error::new(io::ErrorKind::NotFound, message))
            }
        }
    }

    /// Returns the descriptor of a TAP's queue. The set still owns the descriptor.
    pub fn queue(&self, index: u32) -> Option<RawFd> {
        let members = self.shared.members();
        members.get(&index).map(|member| member.tap.as_raw_fd())
    }

    /// Returns a descriptor that is readable while [`Self::read`] has frames.
    pub fn descriptor(&self) -> RawFd {
        self.shared.mailbox.descriptor()
    }

    /// Removes and returns at most `max_frames` frames in order of arrival.
    pub fn read(&self, max_frames: usize) -> Vec<TapFrame> {
        self.shared.mailbox.update(|inbox| {
            let count = max_frames.min(inbox.frames.len());
            let taken: Vec<TapFrame> = inbox.frames.drain(..count).collect();
            for (index, _) in &taken {
                if let Some(share) = inbox.shares.get_mut(index) {
                    *share -= 1;
                }
            }
            taken
        })
    }

    /// Sends frames to the host. Returns the number of frames that the host accepted.
    pub fn write<'f>(&self, frames: impl IntoIterator<Item = (u32, &'f [u8])>) -> usize {
        frames
            .into_iter()
            .filter(|(index, frame)| self.shared.give(*index, frame))
            .count()
    }

    /// Visits the counters of every interface in the set.
    pub fn counters(&self, mut visit: impl FnMut(u32, &Counters)) {
        for (index, member) in self.shared.members().iter() {
            visit(*index, &member.counters);
        }
    }

    /// Returns the number of frames written to interfaces that are not in the set.
    pub fn tx_unknown_interface(&self) -> u64 {
        self.shared.tx_unknown_interface.load(Relaxed)
    }

    /// Removes all interfaces and ends the thread.
    pub fn close(&self) {
        self.stop.update(|stop| stop.0 = true);
        if let Some(thread) = lock(&self.thread).take() {
            // Ignores whether the thread has panicked, because the interfaces must be removed in any case.
            drop(thread.join());
        }
        let rests = lock(&self.shared.rests);
        for member in std::mem::take(&mut *self.shared.write_members()).into_values() {
            self.shared.let_go(&member, !*rests);
        }
    }
}

impl Drop for TapSet {
    fn drop(&mut self) {
        self.close();
    }
}

impl Host for Shared {
    fn give(&self, index: u32, frame: &[u8]) -> bool {
        if let Some(member) = self.members().get(&index) {
            return member.write(frame);
        }
        self.tx_unknown_interface.fetch_add(1, Relaxed);
        false
    }

    fn wake(&self) {
        let mut rests = lock(&self.rests);
        if !std::mem::take(&mut *rests) {
            return;
        }
        for (index, member) in self.members().iter() {
            let attached = member.tap.attach(true);
            let watched =
                attached.and_then(|()| self.watch(member.tap.as_raw_fd(), u64::from(*index)));
            if watched.is_err() {
                // Another program deleted the interface.
                member.counters.rx_errors.fetch_add(1, Relaxed);
            }
        }
    }
}

impl CountedTap {
    /// Writes a frame to the host. Returns whether the host accepted it.
    fn write(&self, frame: &[u8]) -> bool {
        let counters = &self.counters;
        match self.tap.write(frame) {
            Ok(()) => {
                counters.tx_frames.fetch_add(1, Relaxed);
                counters.tx_bytes.fetch_add(frame.len() as u64, Relaxed);
                return true;
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EIO) => &counters.tx_dropped_down,
                Some(libc::EAGAIN) => &counters.tx_dropped_full,
                _ => &counters.tx_errors,
            },
        }
        .fetch_add(1, Relaxed);
        false
    }
}

impl Shared {
    fn members(&self) -> RwLockReadGuard<'_, BTreeMap<u32, CountedTap>> {
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_members(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u32, CountedTap>> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self, descriptor: RawFd, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: data,
        };
        // SAFETY: `event` lives during the call; the kernel copies it.
        let result = unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                descriptor,
                &raw mut event,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Stops receiving frames of a TAP. Detaches the queue, because another process may have the
    /// queue open, too.
    fn let_go(&self, member: &CountedTap, is_attached: bool) {
        if is_attached {
            self.unwatch(member.tap.as_raw_fd());
            // Detaching fails if the interface was deleted. No harm: such an interface sends no frames.
            let _ = member.tap.attach(false);
        }
    }

    fn unwatch(&self, descriptor: RawFd) {
        // SAFETY: EPOLL_CTL_DEL ignores the event. If the descriptor is not watched, the call fails without harm.
        unsafe {
            libc::epoll_ctl(
                self.epoll.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                descriptor,
                std::ptr::null_mut(),
            )
        };
    }

    /// Runs the reading thread until the stop event.
    fn run(&self) {
        let mut buffer = vec![0; FRAME_MAX];
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        loop {
            // SAFETY: pointer and length describe a local array, which lives during the call.
            let ready = unsafe {
                libc::epoll_wait(
                    self.epoll.as_raw_fd(),
                    events.as_mut_ptr(),
                    events.len() as i32,
                    -1,
                )
            };
            // A negative result is EINTR. No descriptor is ready then.
            let ready = usize::try_from(ready).unwrap_or(0);
            for event in &events[..ready] {
                let data = event.u64;
                match u32::try_from(data) {
                    Ok(index) if data != STOP => self.read_slice(index, &mut buffer),
                    _ => return,
                }
            }
        }
    }

    /// Reads up to [`SLICE`] frames of one interface. Holds the read lock while it reads. `remove` waits for this
    /// lock, so this thread never reads a TAP after `remove` has returned.
    fn read_slice(&self, index: u32, buffer: &mut [u8]) {
        let members = self.members();
        let Some(member) = members.get(&index) else {
            return;
        };
        let counters = &member.counters;
        let mut frames: Vec<Box<[u8]>> = Vec::new();
        let mut read = 0;
        while read < SLICE {
            match member.tap.read(buffer) {
                Ok(length) => {
                    counters.rx_frames.fetch_add(1, Relaxed);
                    counters.rx_bytes.fetch_add(length as u64, Relaxed);
                    read += 1;
                    let frame = &buffer[..length];
                    if !self.passes(index, frame) {
                        frames.push(frame.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    counters.rx_errors.fetch_add(1, Relaxed);
                    self.unwatch(member.tap.as_raw_fd());
                    break;
                }
            }
        }
        if frames.is_empty() {
            return;
        }
        let dropped = self.queue(index, frames);
        counters.rx_dropped.fetch_add(dropped, Relaxed);
    }

    /// Offers a frame to the fast path. Returns whether the fast path handled it.
    fn passes(&self, index: u32, frame: &[u8]) -> bool {
        let fast_path = self.fast_path.as_ref();
        fast_path.is_some_and(|fast_path| fast_path.from_host(index, frame))
    }

    /// Queues frames, but not more than the interface's share. Returns the number of dropped frames.
    fn queue(&self, index: u32, frames: Vec<Box<[u8]>>) -> u64 {
        self.mailbox.update(|inbox| {
            let share = inbox.shares.entry(index).or_default();
            let room = self.queue_limit.saturating_sub(*share);
            let dropped = frames.len().saturating_sub(room);
            *share += frames.len() - dropped;
            inbox
                .frames
                .extend(frames.into_iter().take(room).map(|frame| (index, frame)));
            dropped as u64
        })
    }
}
