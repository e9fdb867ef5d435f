// SPDX-License-Identifier: Apache-2.0
//! Reads and sets the queues of ports for an operator.

use sluice_ports::PortId;

use super::{Device, DeviceError};
use crate::levels::QueueSetting;
use crate::mailbox::Command;

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Port that the queue belongs to.
    pub port: PortId,
    /// Priority of the queue. The queue with the highest priority is served first.
    pub priority: u32,
    /// Packets in the queue.
    pub packets: u32,
    /// Depth of the queue: its maximum number of packets.
    pub depth: u32,
    /// Rate of the queue: the maximum number of packets that leave it in a second. 0 means no limit.
    pub rate: u64,
    /// Packets that the queue dropped because it was full, counted since the port was added.
    pub dropped: u64,
}

/// A change of queue settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueChange {
    /// The port; `None` for all ports, including those added later.
    pub port: Option<PortId>,
    /// The priority; `None` for all priorities.
    pub priority: Option<u32>,
    /// New depth in packets; `None` keeps the old depth.
    pub depth: Option<u32>,
    /// New rate in packets per second. 0 means no limit; `None` keeps the old rate.
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

    /// Sets the depth or the rate of queues. The change applies to packets that arrive after this method has returned.
    /// Packets that already wait keep their departure times.
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
