// SPDX-License-Identifier: Apache-2.0
//! Collects a switch's metrics and formats them as text.

use std::sync::Arc;

use prometheus::TextEncoder;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use sluice_admin::About;
use sluice_device::Device;
use sluice_p4runtime::Hub;
use sluice_p4runtime::hub::{EVENT_QUEUE, MAX_STREAMS};

use crate::engines::{self, Engines};
use crate::family::Families;
use crate::{packets, program};

/// A running switch as a source of metrics.
#[derive(Clone)]
pub struct Source {
    about: About,
    device: Arc<Device>,
    hub: Arc<Hub>,
    engines: Engines,
    process: Arc<ProcessCollector>,
}

impl Source {
    /// Creates the source of a switch. `about` has the properties of the switch that the device does not know.
    pub fn new(about: About, device: Arc<Device>, hub: Arc<Hub>) -> Self {
        Self {
            about,
            device,
            hub,
            engines: Engines::new(),
            process: Arc::new(ProcessCollector::for_self()),
        }
    }

    /// Adds ESP engines, whose metrics then appear in the text.
    pub fn with_engines(mut self, engines: Engines) -> Self {
        self.engines = engines;
        self
    }

    /// Returns all metrics as text. Waits until each worker has reported its counters between two batches.
    ///
    /// # Errors
    /// The client library refuses a name, which is a defect of this crate.
    pub fn text(&self) -> prometheus::Result<String> {
        let mut families = Families::default();
        self.process_level(&mut families);
        packets::ports(&self.device, &mut families);
        packets::queues(&self.device, &mut families);
        packets::counters(&self.device, &mut families);
        program::all(&self.device, &mut families);
        engines::all(&self.engines, &mut families);
        self.sessions(&mut families);
        let process = self.process.collect();
        TextEncoder::new().encode_to_string(&families.followed_by(process))
    }

    fn process_level(&self, families: &mut Families) {
        let build = vec![
            ("version", self.about.version.to_owned()),
            ("device_id", self.about.device_id.to_string()),
        ];
        families.gauge(
            "build_info",
            "1, with the version of the switch and the device id as labels.",
            [(build, 1.0)],
        );
        let seconds = self.device.clock().now_us() as f64 / 1e6;
        families.value("uptime_seconds", "Time since the switch started.", seconds);
        let workers = self.device.config().workers;
        families.value("workers", "Threads that process packets.", workers as f64);
    }

    fn sessions(&self, families: &mut Families) {
        let found = self.hub.sessions();
        for (name, help, value) in [
            (
                "p4runtime_streams",
                "Open streams of P4Runtime clients.",
                found.streams,
            ),
            (
                "p4runtime_streams_limit",
                "Maximum number of open streams of P4Runtime clients.",
                MAX_STREAMS,
            ),
            (
                "packet_in_queue_messages",
                "Packet-ins, digests and notifications that wait for clients to read them.",
                found.waiting,
            ),
            (
                "packet_in_queue_longest_messages",
                "Packet-ins, digests and notifications that wait for the slowest client.",
                found.longest,
            ),
            (
                "packet_in_queue_limit_messages",
                "Maximum number of messages that wait for one client. Further messages are dropped.",
                EVENT_QUEUE,
            ),
        ] {
            families.value(name, help, value as f64);
        }
        let primaries = [
            ("default", usize::from(found.has_default_primary)),
            ("named", found.named_primaries),
        ];
        families.gauge(
            "p4runtime_primaries",
            "Primary controllers: of the default role (default), and of all other roles (named).",
            primaries.map(|(role, count)| (vec![("role", role.to_owned())], count as f64)),
        );
    }
}
