// SPDX-License-Identifier: Apache-2.0
//! The queues of ports, as an operator reads and sets them.

use sluice_ports::PortId;

use super::{Device, DeviceError};
use crate::levels::QueueSetting;
use crate::mailbox::Command;

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The port.
    pub port: PortId,
    /// Its priority: the highest goes first.
    pub priority: u32,
    /// Packets in the queue.
    pub packets: u32,
    /// Its depth: the most packets that it holds.
    pub depth: u32,
    /// Its rate: the most packets that leave it in a second; 0 for no limit.
    pub rate: u64,
    /// Packets that were dropped because the queue was full, since the port was added.
    pub dropped: u64,
}

/// A change of queue settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueChange {
    /// The port; `None` for all ports, including those added later.
    pub port: Option<PortId>,
    /// The priority; `None` for all.
    pub priority: Option<u32>,
    /// New depth, in packets.
    pub depth: Option<u32>,
    /// New rate, in packets per second; 0 for no limit.
    pub rate: Option<u64>,
}

impl QueueChange {
    fn concerns(&self, priority: usize) -> bool {
        self.priority.is_none_or(|one| one as usize == priority)
    }

    fn change(&self, setting: QueueSetting) -> QueueSetting {
        QueueSetting {
            depth: self.depth.unwrap_or(setting.depth),
            rate: self.rate.unwrap_or(setting.rate),
        }
    }
}

impl Device {
    /// Returns all queues, in the order of ports and priorities.
    pub fn queues(&self) -> Vec<QueueInfo> {
        let control = self.control.lock();
        let ports = control.ports.iter();
        let queues = ports.flat_map(|(port, state)| {
            let levels = state.levels.all().iter().zip(0..);
            levels.map(|(level, priority)| {
                let QueueSetting { depth, rate } = level.setting();
                QueueInfo {
                    port: *port,
                    priority,
                    packets: level.size(),
                    depth,
                    rate,
                    dropped: level.dropped(),
                }
            })
        });
        queues.collect()
    }

    /// Sets the depth or the rate of queues. The change applies to packets that arrive after this has returned; packets
    /// that wait already keep their times.
    ///
    /// # Errors
    /// [`DeviceError::NoSuchPort`], [`DeviceError::NoSuchQueue`].
    pub fn set_queues(&self, change: QueueChange) -> Result<(), DeviceError> {
        let mut control = self.control.lock();
        let queues = self.config.queues.max(1);
        if let Some(priority) = change.priority.filter(|priority| *priority >= queues) {
            return Err(DeviceError::NoSuchQueue(priority, queues));
        }
        match change.port {
            Some(port) if !control.ports.contains_key(&port) => {
                return Err(DeviceError::NoSuchPort(port));
            }
            Some(_) => {}
            None => {
                let settings = control.queues.iter_mut().enumerate();
                let concerned = settings.filter(|(priority, _)| change.concerns(*priority));
                concerned.for_each(|(_, setting)| *setting = change.change(*setting));
            }
        }
        let ports = control.ports.iter();
        let ports = ports.filter(|(port, _)| change.port.is_none_or(|one| one == **port));
        for (_, state) in ports {
            let levels = state.levels.all().iter().enumerate();
            let concerned = levels.filter(|(priority, _)| change.concerns(*priority));
            concerned.for_each(|(_, level)| level.set(change.change(level.setting())));
        }
        self.tell_all(|| Command::QueuesChanged);
        Ok(())
    }
}
