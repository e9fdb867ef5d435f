// SPDX-License-Identifier: Apache-2.0
//! Carrier changes of the switch's interfaces, told as they happen (rtnetlink).
//!
//! A link is up when its interface is administratively up and has carrier. Every link's state is told once at the start;
//! afterwards only changes are. Lost notifications are made good by reading all links again.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use crate::netlink::{self, Message, Socket};
use crate::poller::{Poller, Waker};
use crate::{PortId, sys};

const UP: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;

/// Watches until dropped.
#[derive(Debug)]
pub struct LinkMonitor {
    stop: Waker,
    thread: Option<JoinHandle<()>>,
}

impl LinkMonitor {
    /// Watches the interfaces of these ports; `tell(port, up)` is called on a thread of the monitor's own, for the
    /// initial states before this function returns.
    pub fn start(
        ports: &[(PortId, String)],
        mut tell: impl FnMut(PortId, bool) + Send + 'static,
    ) -> io::Result<Self> {
        let mut links = Links::default();
        for (port, name) in ports {
            links
                .ports
                .insert(sys::interface_index(name)?, (*port, None));
        }
        // Subscribed before the first reading, so that no change falls between.
        let socket = Socket::open(libc::RTMGRP_LINK as u32)?;
        links.read_all(&mut tell)?;
        let stop = Waker::new()?;
        let watcher = Watcher {
            socket,
            stop: stop.clone(),
            links,
        };
        let thread = thread::Builder::new()
            .name("link-monitor".into())
            .spawn(move || {
                if let Err(error) = watcher.run(&mut tell) {
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
            // A panic there has been reported already; there is nothing to add when stopping.
            let _ = thread.join();
        }
    }
}

/// What is known of each interface index.
#[derive(Debug, Default)]
struct Links {
    ports: HashMap<i32, (PortId, Option<bool>)>,
}

impl Links {
    fn read_all(&mut self, tell: &mut impl FnMut(PortId, bool)) -> io::Result<()> {
        for message in Socket::open(0)?.dump(libc::RTM_GETLINK, &[0; 16])? {
            self.apply(&message, tell);
        }
        Ok(())
    }

    fn apply(&mut self, message: &Message, tell: &mut impl FnMut(PortId, bool)) {
        let Some((index, flags)) = netlink::link(&message.body) else {
            return;
        };
        let up = match message.kind {
            libc::RTM_NEWLINK => flags & UP == UP,
            libc::RTM_DELLINK => false,
            _ => return,
        };
        if let Some((port, known)) = self.ports.get_mut(&index)
            && known.replace(up) != Some(up)
        {
            tell(*port, up);
        }
    }
}

struct Watcher {
    socket: Socket,
    stop: Waker,
    links: Links,
}

impl Watcher {
    fn run(mut self, tell: &mut impl FnMut(PortId, bool)) -> io::Result<()> {
        const STOP: u64 = 1;
        let mut poller = Poller::new()?;
        poller.add(self.socket.as_fd(), 0)?;
        poller.add(self.stop.as_fd(), STOP)?;
        loop {
            if poller.wait(None)?.any(|event| event.token == STOP) {
                return Ok(());
            }
            match self.socket.receive() {
                Ok(messages) => messages.iter().for_each(|m| self.links.apply(m, tell)),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    self.links.read_all(tell)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
