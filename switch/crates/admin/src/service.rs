// SPDX-License-Identifier: Apache-2.0
//! Handles the admin requests.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_device::trace::Filter;
use sluice_device::{
    Device, DeviceError, InterfaceOptions, PortId, PortInfo, ProfiledPoint, QueueChange, QueueInfo,
    named_port,
};
use sluice_program::{ProfileId, TableId};
use sluice_tables::Store;
use tokio::sync::oneshot;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

use crate::proto::admin_server::{Admin, AdminServer};
use crate::proto::*;
use crate::trace::{TraceStream, response};
use crate::{fib, state};

/// Maximum number of conditions in a trace's filter. Each condition is checked for every packet.
const MAX_CONDITIONS: usize = 64;

/// Maximum length in bytes of the packet of a dry run.
const LONGEST_PACKET: usize = 16 << 10;

/// Minimum time between two dry runs.
const BETWEEN_DRY_RUNS: Duration = Duration::from_millis(10);

/// Maximum duration of a profile.
const LONGEST_PROFILE: Duration = Duration::from_secs(3600);

/// Properties of the switch that the device does not know.
#[derive(Debug, Clone)]
pub struct About {
    /// Version of this software.
    pub version: &'static str,
    /// Device id that P4Runtime clients use.
    pub device_id: u64,
    /// Address at which P4Runtime is served.
    pub p4runtime_address: String,
}

/// Whether ports can be attached at run time, and with which options.
#[derive(Debug, Clone)]
pub enum PortPolicy {
    /// New ports are interfaces, attached with these options.
    Interfaces(InterfaceOptions),
    /// No ports can be attached, because the ports are pcap files. One receiver reads all of them, and it is created
    /// when the switch starts.
    Refused,
}

/// Returns a service that answers only read requests and refuses all others. Another server can offer this service at
/// its own address.
pub fn questions(device: Arc<Device>, about: About) -> Routes {
    Routes::new(AdminServer::new(Service {
        about,
        ports: PortPolicy::Refused,
        device,
        rights: Rights::Entries,
        dry_running: Arc::default(),
        baselines: Mutex::default(),
    }))
}

/// Rights of clients, which depend on the address that they connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rights {
    /// Read information that any user of the host may have.
    Questions,
    /// Also read the actions of entries, which P4Runtime clients at the same address can read anyway.
    Entries,
    /// Also change the switch, slow it down, and see packets.
    All,
}

pub(crate) struct Service {
    pub(crate) about: About,
    pub(crate) ports: PortPolicy,
    pub(crate) device: Arc<Device>,
    pub(crate) rights: Rights,
    /// Lock held during a dry run, and for [`BETWEEN_DRY_RUNS`] afterwards. Each address has a lock of its own, so
    /// requests at P4Runtime's address cannot delay requests at the admin socket. Even with two locks, dry runs take
    /// little of the workers' time.
    pub(crate) dry_running: Arc<tokio::sync::Mutex<()>>,
    /// Counters of each port at the last reset of the port's statistics.
    pub(crate) baselines: Mutex<Baselines>,
}

pub(crate) type Baselines = HashMap<PortId, PortStatistics>;

type Reply<T> = Result<Response<T>, Status>;

impl Service {
    /// Refuses the request unless the client uses the admin socket.
    fn check_changes(&self) -> Result<(), Status> {
        self.check(Rights::All)
    }

    fn check(&self, needed: Rights) -> Result<(), Status> {
        if self.rights >= needed {
            return Ok(());
        }
        Err(Status::permission_denied(
            "this address serves only read requests: use the switch's admin socket (--admin unix:PATH)",
        ))
    }

    fn baselines(&self) -> MutexGuard<'_, Baselines> {
        // A poisoned lock can still be used, because a thread that panics leaves no partial change.
        self.baselines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all ports, with their counters since the last reset of statistics.
    fn listed(&self) -> ListPortsResponse {
        let baselines = self.baselines();
        let since = |info: PortInfo| {
            let baseline = baselines.get(&info.number).copied().unwrap_or_default();
            let all = port(info);
            let statistics = all.statistics.map(|now| PortStatistics {
                rx_packets: now.rx_packets.saturating_sub(baseline.rx_packets),
                rx_bytes: now.rx_bytes.saturating_sub(baseline.rx_bytes),
                rx_ring_full: now.rx_ring_full.saturating_sub(baseline.rx_ring_full),
                rx_damaged: now.rx_damaged.saturating_sub(baseline.rx_damaged),
                tx_packets: now.tx_packets.saturating_sub(baseline.tx_packets),
                tx_bytes: now.tx_bytes.saturating_sub(baseline.tx_bytes),
                tx_link_down: now.tx_link_down.saturating_sub(baseline.tx_link_down),
                tx_queue_full: now.tx_queue_full.saturating_sub(baseline.tx_queue_full),
                tx_bad_length: now.tx_bad_length.saturating_sub(baseline.tx_bad_length),
            });
            Port { statistics, ..all }
        };
        ListPortsResponse {
            ports: self.device.ports().into_iter().map(since).collect(),
            cpu_port: self.device.config().cpu_port.map(u32::from),
        }
    }

    /// Runs a function that waits for the operating system or for workers. Uses a thread that serves no requests.
    async fn blocking<T: Send + 'static>(
        &self,
        action: impl FnOnce(&Device) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        blocking(self.device.clone(), action).await
    }
}

async fn blocking<T: Send + 'static>(
    device: Arc<Device>,
    action: impl FnOnce(&Device) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(move || action(&device)).await;
    done.map_err(|error| Status::internal(error.to_string()))?
}

#[tonic::async_trait]
impl Admin for Service {
    async fn get_switch(&self, _: Request<GetSwitchRequest>) -> Reply<Switch> {
        let (about, config) = (&self.about, self.device.config());
        let store = self.device.store();
        let program = store.map_or_else(String::new, |store| store.program().name.clone());
        Ok(Response::new(Switch {
            version: about.version.to_owned(),
            device_id: about.device_id,
            p4runtime_address: about.p4runtime_address.clone(),
            process_id: std::process::id(),
            uptime_us: self.device.clock().now_us(),
            workers: u32::try_from(config.workers).unwrap_or(u32::MAX),
            cpu_port: config.cpu_port.map(u32::from),
            drop_port: config.drop_port,
            program,
            engine: self
                .device
                .engine()
                .map_or_else(String::new, |engine| engine.to_string()),
        }))
    }

    async fn list_ports(&self, _: Request<ListPortsRequest>) -> Reply<ListPortsResponse> {
        Ok(Response::new(self.listed()))
    }

    async fn reset_ports(&self, request: Request<ResetPortsRequest>) -> Reply<ListPortsResponse> {
        self.check_changes()?;
        let number = request.into_inner().number.map(port_number).transpose()?;
        let ports = self.device.ports().into_iter();
        let ports: Vec<_> = ports
            .filter(|port| number.is_none_or(|number| number == port.number))
            .collect();
        if let (Some(number), true) = (number, ports.is_empty()) {
            return Err(Status::not_found(format!("there is no port {number}")));
        }
        self.baselines().extend(
            ports
                .into_iter()
                .filter_map(|info| Some((info.number, port(info).statistics?))),
        );
        Ok(Response::new(self.listed()))
    }

    async fn add_port(&self, request: Request<AddPortRequest>) -> Reply<Port> {
        self.check_changes()?;
        let AddPortRequest { number, interface } = request.into_inner();
        let number = port_number(number)?;
        let PortPolicy::Interfaces(options) = self.ports.clone() else {
            let problem = "the ports are pcap files (--use-files), so no port can be added";
            return Err(Status::failed_precondition(problem));
        };
        let added = move |device: &Device| {
            // Order: this check comes before the interface is opened, because opening changes the settings of the
            // interface.
            device.check_port(number, &interface).map_err(status)?;
            let port = named_port(number, &interface, device.config().workers, &options)
                .map_err(|error| interface_error(&interface, &error))?;
            device.add_port(port).map_err(status)?;
            let info = device
                .ports()
                .into_iter()
                .find(|port| port.number == number);
            info.ok_or_else(|| Status::aborted(format!("port {number} was removed meanwhile")))
        };
        self.baselines().remove(&number);
        Ok(Response::new(port(self.blocking(added).await?)))
    }

    async fn remove_port(&self, request: Request<RemovePortRequest>) -> Reply<RemovePortResponse> {
        self.check_changes()?;
        let number = port_number(request.into_inner().number)?;
        let remove = move |device: &Device| device.remove_port(number).map_err(status);
        self.blocking(remove).await?;
        self.baselines().remove(&number);
        Ok(Response::new(RemovePortResponse {}))
    }

    async fn get_counters(&self, _: Request<GetCountersRequest>) -> Reply<GetCountersResponse> {
        let counter = |(name, value): (&str, u64)| Counter {
            name: name.to_owned(),
            value,
        };
        let program = self.blocking(|device| Ok(device.engine_counters())).await?;
        Ok(Response::new(GetCountersResponse {
            device: self.device.statistics().named().map(counter).collect(),
            program: program.into_iter().map(counter).collect(),
        }))
    }

    async fn get_tables(&self, _: Request<GetTablesRequest>) -> Reply<GetTablesResponse> {
        let tables = |device: &Device| Ok(occupancy(&*store(device)?));
        Ok(Response::new(self.blocking(tables).await?))
    }

    async fn get_profile(&self, request: Request<GetProfileRequest>) -> Reply<GetProfileResponse> {
        self.check_changes()?;
        let GetProfileRequest { seconds, every } = request.into_inner();
        let time = Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| *time <= LONGEST_PROFILE)
            .ok_or_else(|| Status::invalid_argument(format!("{seconds} seconds")))?;
        let every = NonZeroU32::new(every).unwrap_or(NonZeroU32::MIN);
        let profile = move |device: &Device| device.profile(every, time).map_err(status);
        let report = self.blocking(profile).await?;
        let row = |row: ProfiledPoint| ProfileRow {
            kind: row.kind.to_owned(),
            name: row.name,
            visits: row.visits,
            nanoseconds: u64::try_from(row.time.as_nanos()).unwrap_or(u64::MAX),
        };
        Ok(Response::new(GetProfileResponse {
            packets: report.packets,
            engine: report.engine.to_string(),
            rows: report.rows.into_iter().map(row).collect(),
        }))
    }

    async fn list_fibs(&self, request: Request<ListFibsRequest>) -> Reply<ListFibsResponse> {
        let table = request.into_inner().table;
        let list = move |device: &Device| fib::list(&*store(device)?, &table);
        Ok(Response::new(self.blocking(list).await?))
    }

    async fn set_fib(&self, request: Request<SetFibRequest>) -> Reply<ListFibsResponse> {
        self.check_changes()?;
        let request = request.into_inner();
        let set = move |device: &Device| fib::set(&*store(device)?, &request);
        Ok(Response::new(self.blocking(set).await?))
    }

    async fn bench_fib(&self, request: Request<BenchFibRequest>) -> Reply<BenchFibResponse> {
        self.check_changes()?;
        let request = request.into_inner();
        let bench = move |device: &Device| fib::bench(&*store(device)?, &request);
        Ok(Response::new(self.blocking(bench).await?))
    }

    async fn list_replication(
        &self,
        _: Request<ListReplicationRequest>,
    ) -> Reply<ListReplicationResponse> {
        let list = |device: &Device| Ok(state::replication(&*store(device)?));
        Ok(Response::new(self.blocking(list).await?))
    }

    async fn read_register(
        &self,
        request: Request<ReadRegisterRequest>,
    ) -> Reply<ReadRegisterResponse> {
        let request = request.into_inner();
        let read = move |device: &Device| state::read(&*store(device)?, &request);
        Ok(Response::new(self.blocking(read).await?))
    }

    async fn write_register(
        &self,
        request: Request<WriteRegisterRequest>,
    ) -> Reply<ReadRegisterResponse> {
        self.check_changes()?;
        let request = request.into_inner();
        let write = move |device: &Device| state::write(&*store(device)?, &request);
        Ok(Response::new(self.blocking(write).await?))
    }

    async fn list_queues(&self, _: Request<ListQueuesRequest>) -> Reply<ListQueuesResponse> {
        Ok(Response::new(state::queues(&self.device, |_| true)))
    }

    async fn set_queues(&self, request: Request<SetQueuesRequest>) -> Reply<ListQueuesResponse> {
        self.check_changes()?;
        let request = request.into_inner();
        if request.depth.is_none() && request.rate.is_none() {
            return Err(Status::invalid_argument(
                "the request has neither a depth nor a rate",
            ));
        }
        let change = QueueChange {
            port: request.port.map(port_number).transpose()?,
            priority: request.priority,
            depth: request.depth,
            rate: request.rate,
        };
        let set = move |device: &Device| device.set_queues(change).map_err(status);
        self.blocking(set).await?;
        let concerned = |queue: &QueueInfo| {
            change.port.is_none_or(|port| port == queue.port)
                && change.priority.is_none_or(|one| one == queue.priority)
        };
        Ok(Response::new(state::queues(&self.device, concerned)))
    }

    async fn dry_run(&self, request: Request<DryRunRequest>) -> Reply<TraceResponse> {
        self.check(Rights::Entries)?;
        let DryRunRequest { port, packet } = request.into_inner();
        let port = port_number(port)?;
        if packet.len() > LONGEST_PACKET {
            let problem = format!(
                "the packet has {} bytes; the maximum is {LONGEST_PACKET}",
                packet.len()
            );
            return Err(Status::invalid_argument(problem));
        }
        let turn = Arc::clone(&self.dry_running).lock_owned().await;
        let device = self.device.clone();
        let (answer, trace) = oneshot::channel();
        // A separate task holds the lock until the dry run ends, even if the client disconnects. Otherwise a client
        // could start dry runs back to back by disconnecting and asking again. This would delay the worker's packets.
        tokio::spawn(async move {
            let dry_run = move |device: &Device| device.dry_run(port, packet).map_err(status);
            let _ = answer.send(blocking(device, dry_run).await);
            tokio::time::sleep(BETWEEN_DRY_RUNS).await;
            drop(turn);
        });
        let trace = trace
            .await
            .map_err(|_| Status::internal("the dry run ended early"))?;
        Ok(Response::new(response(&trace?, 0)))
    }

    type TraceStream = TraceStream;

    async fn trace(&self, request: Request<TraceRequest>) -> Reply<TraceStream> {
        self.check_changes()?;
        let TraceRequest { filter, count } = request.into_inner();
        if filter.len() > MAX_CONDITIONS {
            let problem = format!("the filter has more than {MAX_CONDITIONS} conditions");
            return Err(Status::invalid_argument(problem));
        }
        let mut wanted = Filter::default();
        for condition in &filter {
            wanted.add(condition).map_err(Status::invalid_argument)?;
        }
        let count = (count != 0).then_some(count);
        Ok(Response::new(TraceStream::start(
            &self.device,
            wanted,
            count,
        )))
    }
}

/// Returns the store of the running program.
fn store(device: &Device) -> Result<Arc<Store>, Status> {
    let no_program = || Status::failed_precondition("no program is loaded");
    device.store().ok_or_else(no_program)
}

fn port_number(number: u32) -> Result<PortId, Status> {
    let beyond = |_| Status::invalid_argument(format!("{number} is not a port number"));
    PortId::try_from(number).map_err(beyond)
}

fn port(info: PortInfo) -> Port {
    let counted = info.statistics;
    Port {
        number: u32::from(info.number),
        name: info.name,
        up: info.up,
        qdisc: info.qdisc.unwrap_or_default(),
        statistics: Some(PortStatistics {
            rx_packets: counted.rx_packets,
            rx_bytes: counted.rx_bytes,
            rx_ring_full: counted.rx_dropped,
            rx_damaged: counted.rx_errors,
            tx_packets: counted.tx_packets,
            tx_bytes: counted.tx_bytes,
            tx_link_down: counted.tx_link_down,
            tx_queue_full: counted.tx_queue_full,
            tx_bad_length: counted.tx_too_long,
        }),
    }
}

fn status(error: DeviceError) -> Status {
    let message = error.to_string();
    match error {
        DeviceError::PortExists(_) | DeviceError::InterfaceInUse { .. } => {
            Status::already_exists(message)
        }
        DeviceError::PortReserved(_) => Status::invalid_argument(message),
        DeviceError::NoSuchPort(_) => Status::not_found(message),
        DeviceError::NoSuchQueue(..) => Status::out_of_range(message),
        DeviceError::Io(_) | DeviceError::NoProgram => Status::failed_precondition(message),
    }
}

fn interface_error(name: &str, error: &io::Error) -> Status {
    let message = format!("interface {name}: {error}");
    match error.kind() {
        io::ErrorKind::PermissionDenied => Status::permission_denied(message),
        io::ErrorKind::InvalidInput => Status::invalid_argument(message),
        // ENODEV is the kernel's error if no interface has this name.
        _ if error.raw_os_error() == Some(libc::ENODEV) => Status::not_found(message),
        _ => Status::failed_precondition(message),
    }
}

fn occupancy(store: &Store) -> GetTablesResponse {
    let (program, view) = (store.program(), store.view());
    let used = |used: usize, size: usize| {
        let (used, size) = (used as u64, size as u64);
        Some(Occupancy { used, size })
    };
    let tables = (0..program.tables.len()).map(|index| TableId(index as u32));
    let tables = tables.filter(|id| !program.table(*id).key.is_empty());
    let profiles = (0..program.profiles.len()).map(|index| ProfileId(index as u32));
    let table = |id| {
        let table = program.table(id);
        Table {
            name: table.name.clone(),
            entries: used(view.entry_count(id), table.max_size),
            is_const: table.const_entries,
        }
    };
    let profile = |id| {
        let (members, groups) = view.profile_counts(id);
        let profile = program.profile(id);
        ActionProfile {
            name: profile.name.clone(),
            members: used(members, profile.max_size),
            groups: groups as u64,
        }
    };
    let (groups, sessions) = view.replication_counts();
    let limits = store.limits();
    GetTablesResponse {
        tables: tables.map(table).collect(),
        action_profiles: profiles.map(profile).collect(),
        multicast_groups: used(groups, limits.multicast_groups),
        clone_sessions: used(sessions, limits.clone_sessions),
    }
}
