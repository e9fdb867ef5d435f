// SPDX-License-Identifier: Apache-2.0
//! Reports state changes of the switch's interfaces at once, by rtnetlink.
//!
//! A link is up when its interface is administratively up and has carrier. At the start, the monitor reports the state
//! of every link once. Afterwards it reports only changes. When an interface disappears, its link is reported down.
//! When a new interface has the name of one that disappeared, the monitor reports the new one again and again, until
//! the observer can use it. If notifications were lost, the monitor reads all links again.
//!
//! The monitor also makes the observer check that an interface is still closed to the host. It does so when the traffic
//! control (tc) of the interface changes, and every few seconds.

use std::io;
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::PortId;
use crate::host_filter::tc_index;
use crate::netlink::{self, Message, Socket};
use crate::poller::{Poller, Waker};

/// Multicast group of notifications about qdiscs and filters.
const RTMGRP_TC: u32 = 0x8;

/// Interval of the checks, which also find changes without a notification.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

const UP: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;

/// An interface to watch.
#[derive(Debug, Clone)]
pub struct Link {
    /// Port of the interface.
    pub port: PortId,
    /// Name of the interface.
    pub name: String,
    /// Index of the interface, from [`crate::interface::SilentInterface::index`].
    pub index: i32,
}

/// Receives the monitor's reports. All methods run on the monitor's own thread.
pub trait LinkObserver: Send + 'static {
    /// Called when a port's link went up or down.
    fn state(&mut self, port: PortId, up: bool);

    /// Called when an interface has the name of the port's interface, which had disappeared. Returns an error if the
    /// new interface cannot be used yet.
    fn appeared(&mut self, port: PortId) -> io::Result<()>;

    /// Called when the port's interface may have been opened to the host.
    fn check(&mut self, port: PortId);
}

/// Watches interfaces until this is dropped.
#[derive(Debug)]
pub struct LinkMonitor {
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl LinkMonitor {
    /// Starts to watch these interfaces. When this returns, the observer has received the initial states.
    pub fn start(links: Vec<Link>, mut observer: impl LinkObserver) -> io::Result<Self> {
        let watched = |link| Watched {
            link,
            there: true,
            up: None,
        };
        let mut links = Links(links.into_iter().map(watched).collect());
        // Order: the socket subscribes before the links are read, so that no change is missed.
        let socket = Socket::open(libc::RTMGRP_LINK as u32 | RTMGRP_TC)?;
        links.read_all(&mut observer)?;
        links.check_all(&mut observer);
        let stop = Waker::new()?;
        let watcher = Watcher {
            socket,
            stop: stop.clone(),
            links,
        };
        let thread = thread::Builder::new()
            .name("link-monitor".into())
            .spawn(move || {
                if let Err(error) = watcher.run(&mut observer) {
                    tracing::error!(%error, "link states are no longer watched");
                }
            })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for LinkMonitor {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            // If the thread has panicked, the panic was already reported.
            let _ = thread.join();
        }
    }
}

/// State of a watched interface.
#[derive(Debug)]
struct Watched {
    link: Link,
    /// Whether the interface with this index still exists.
    there: bool,
    /// Last state that was reported.
    up: Option<bool>,
}

impl Watched {
    fn tell(&mut self, up: bool, observer: &mut impl LinkObserver) {
        if self.up.replace(up) != Some(up) {
            observer.state(self.link.port, up);
        }
    }

    fn gone(&mut self, observer: &mut impl LinkObserver) {
        self.there = false;
        self.tell(false, observer);
    }

    /// Handles a notification that an interface has the port's name and this index. Returns whether the port uses this
    /// interface now.
    fn found(&mut self, index: i32, observer: &mut impl LinkObserver) -> bool {
        if self.there && self.link.index == index {
            return true;
        }
        // If the notification about the removal of the old interface was lost, this reports it.
        self.gone(observer);
        match observer.appeared(self.link.port) {
            Ok(()) => {
                self.link.index = index;
                self.there = true;
            }
            Err(error) => {
                let name = &self.link.name;
                tracing::warn!(name, %error, "the interface is back but cannot be used yet");
            }
        }
        self.there
    }
}

#[derive(Debug)]
struct Links(Vec<Watched>);

impl Links {
    fn read_all(&mut self, observer: &mut impl LinkObserver) -> io::Result<()> {
        let messages = Socket::open(0)?.dump(libc::RTM_GETLINK, &[0; 16])?;
        let exists = |index: i32| {
            let mut links = messages
                .iter()
                .filter_map(|message| netlink::link(&message.body));
            links.any(|(there, _)| there == index)
        };
        for watched in &mut self.0 {
            if !exists(watched.link.index) {
                watched.gone(observer);
            }
        }
        for message in &messages {
            self.apply(message, observer);
        }
        Ok(())
    }

    fn check_all(&self, observer: &mut impl LinkObserver) {
        let there = self.0.iter().filter(|watched| watched.there);
        there.for_each(|watched| observer.check(watched.link.port));
    }

    fn apply(&mut self, message: &Message, observer: &mut impl LinkObserver) {
        let Some((index, flags)) = netlink::link(&message.body) else {
            return;
        };
        let watched = |watched: &&mut Watched| watched.there && watched.link.index == index;
        match message.kind {
            libc::RTM_NEWLINK => {
                let known = self.0.iter().position(|w| w.there && w.link.index == index);
                // Compares the index first, because an interface that was renamed is still the same interface.
                let position = known.or_else(|| {
                    let name = netlink::link_name(&message.body)?;
                    self.0.iter().position(|watched| watched.link.name == name)
                });
                let Some(watched) = position.map(|position| &mut self.0[position]) else {
                    return;
                };
                if watched.found(index, observer) {
                    watched.tell(flags & UP == UP, observer);
                }
            }
            libc::RTM_DELLINK => {
                if let Some(watched) = self.0.iter_mut().find(watched) {
                    watched.gone(observer);
                }
            }
            libc::RTM_NEWQDISC
            | libc::RTM_DELQDISC
            | libc::RTM_NEWTFILTER
            | libc::RTM_DELTFILTER => self.traffic_control(message, observer),
            _ => {}
        }
    }

    fn traffic_control(&self, message: &Message, observer: &mut impl LinkObserver) {
        let index = tc_index(message);
        let of = |watched: &&Watched| watched.there && Some(watched.link.index) == index;
        if let Some(watched) = self.0.iter().find(of) {
            observer.check(watched.link.port);
        }
    }
}

struct Watcher {
    socket: Socket,
    stop: Waker,
    links: Links,
}

impl Watcher {
    fn run(mut self, observer: &mut impl LinkObserver) -> io::Result<()> {
        const STOP: u64 = 1;
        let mut poller = Poller::new()?;
        poller.add(self.socket.as_fd(), 0)?;
        poller.add(self.stop.as_fd(), STOP)?;
        let mut next_check = Instant::now() + CHECK_PERIOD;
        loop {
            let wait = next_check.saturating_duration_since(Instant::now());
            let (mut stop, mut readable) = (false, false);
            for event in poller.wait(Some(wait))? {
                stop |= event.token == STOP;
                readable |= event.token != STOP;
            }
            if stop {
                return Ok(());
            }
            if Instant::now() >= next_check {
                self.links.check_all(observer);
                next_check = Instant::now() + CHECK_PERIOD;
            }
            if !readable {
                continue;
            }
            match self.socket.receive() {
                Ok(messages) => messages.iter().for_each(|m| self.links.apply(m, observer)),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.links.read_all(observer)?;
                    self.links.check_all(observer);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
