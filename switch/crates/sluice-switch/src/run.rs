// SPDX-License-Identifier: Apache-2.0
//! Starts a switch with the given options, and stops it.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use sluice_device::{Config, Device, DeviceError, file_ports, named_port};
use sluice_metrics::Source;
use sluice_p4runtime::listen::Listener;
use sluice_p4runtime::proto::v1::ForwardingPipelineConfig;
use sluice_p4runtime::{Hub, Server, Tls, p4info};
use sluice_program::Program;
use sluice_service_manager::ServiceManager;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::engine_ports::{EnginePorts, Sockets};
use crate::options::Options;
use crate::service_manager::keep_informed;
use crate::{admin, metrics, privileges, trace_log};

/// Time that connections have to end after the switch has begun to stop.
const GRACE: Duration = Duration::from_millis(300);

/// Sockets and files that must be opened before capabilities are dropped.
pub(crate) struct Inputs {
    listener: Listener,
    tls: Option<Tls>,
    json: Vec<u8>,
    p4info: Vec<u8>,
    engines: Sockets,
}

impl Inputs {
    /// Listens for P4Runtime clients, and reads the files that the options name.
    pub(crate) fn open(options: &Options) -> anyhow::Result<Self> {
        let address = &options.grpc_server_addr;
        let flag = || format!("--grpc-server-addr {address}");
        let read = |path: &Option<PathBuf>| match path {
            Some(path) => fs::read(path).with_context(|| path.display().to_string()),
            None => Ok(Vec::new()),
        };
        let listener = Listener::bind(address, options.socket_access()).with_context(flag)?;
        let local = listener.is_local().with_context(flag)?;
        options.check_reach(local).map_err(anyhow::Error::msg)?;
        Ok(Self {
            listener,
            tls: options.tls.load()?,
            json: read(&options.json)?,
            p4info: read(&options.p4info)?,
            engines: Sockets::open(&options.engine_ports)?,
        })
    }
}

/// Runs the switch until SIGTERM or SIGINT.
pub(crate) fn run(options: &Options, inputs: Inputs) -> anyhow::Result<()> {
    let Inputs {
        listener,
        tls,
        json,
        p4info,
        engines,
    } = inputs;
    let mut engines =
        EnginePorts::prepare(engines, &options.engine_state_directory, options.workers)?;
    for option in options.foreign.ignored() {
        tracing::warn!(option, "this option of BMv2 has no effect");
    }
    let config = Config {
        workers: usize::from(options.workers),
        cpu_port: options.cpu_port,
        drop_port: u32::from(options.drop_port),
        engine: options.engine,
        limits: options.limits(),
        queues: options.priority_queues,
        worker_nice: options.worker_nice,
    };
    let (hub, digests) = Hub::new(options.device_id);
    let device = Arc::new(Device::start(config, hub.clone())?);
    privileges::give_up_niceness().context("cannot give up CAP_SYS_NICE")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("grpc")
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let device_id = options.device_id;
        let mut server = Server::new(listener, device_id, device.clone(), hub.clone(), digests);
        if options.writes_from_any_connection {
            server = server.with_writes_from_any_connection();
        }
        if options.roles_by_annotation {
            server = server.with_roles_by_annotation();
        }
        if let Some(tls) = tls {
            server = server.with_tls(tls);
        }
        let about = admin::about(options, server.address()?);
        let server = server.with_services(sluice_admin::questions(device.clone(), about.clone()));
        let source = Source::new(about.clone(), device.clone(), hub);
        let source = source.with_engines(engines.engines());
        let metrics = metrics::start(options, source).await?;
        let admin = admin::start(options, device.clone(), about).await?;
        let _trace_log = trace_log::start(&device)?;
        // Order: the program is loaded before ports are added, so that the program processes even the first packet.
        tokio::task::block_in_place(|| {
            load_program(options, json, &p4info, &server, &device)?;
            attach_ports(options, &device)?;
            engines.attach(&device)
        })?;
        let result = serve(server, &device).await;
        admin.stop();
        drop(metrics);
        result
    });
    stop(runtime, &device);
    result
}

fn load_program(
    options: &Options,
    json: Vec<u8>,
    p4info: &[u8],
    server: &Server,
    device: &Device,
) -> anyhow::Result<()> {
    let Some(path) = &options.json else {
        return Ok(());
    };
    let Some(p4info_path) = &options.p4info else {
        let program = Program::from_json(&json).with_context(|| path.display().to_string())?;
        device.load(Some(device.new_store(program)));
        return Ok(());
    };
    let p4info = if p4info_path
        .extension()
        .is_some_and(|extension| extension == "bin")
    {
        p4info::from_binary(p4info)
    } else {
        p4info::from_text(&String::from_utf8_lossy(p4info))
    };
    let config = ForwardingPipelineConfig {
        p4info: Some(p4info.with_context(|| p4info_path.display().to_string())?),
        p4_device_config: json.into(),
        cookie: None,
    };
    match server.control().load(config) {
        Ok(()) => Ok(()),
        Err(status) => bail!("{}: {}", path.display(), status.message()),
    }
}

fn attach_ports(options: &Options, device: &Device) -> anyhow::Result<()> {
    if let Some(seconds) = options.use_files {
        let delay = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        for port in file_ports(&options.interfaces, delay)? {
            device.add_port(port)?;
        }
        return Ok(());
    }
    let how = admin::interface_options(options);
    for (number, name) in &options.interfaces {
        let attach = || -> anyhow::Result<()> {
            // Checked first, so that an interface that is already a port is not opened and closed again.
            device.check_port(*number, name)?;
            let port = named_port(*number, name, device.config().workers, &how)?;
            Ok(device.add_port(port)?)
        };
        if let Err(error) = attach().with_context(|| format!("-i {number}@{name}")) {
            if options.strict_ports || !is_survived(&error) {
                return Err(error);
            }
            // Printed even if logging is off, because the operator expects this port.
            let said = format!("sluice-switch: no port: {error:#}");
            tracing::error!("{said}");
            if options.log_console || options.log_file.is_some() {
                let _ = writeln!(std::io::stderr(), "{said}");
            }
        }
    }
    Ok(())
}

/// Returns whether the switch starts without this port, as BMv2 does. It does if the interface does not exist, or if
/// the port or interface is given twice. It does not if the interface cannot be closed to the host.
fn is_survived(error: &anyhow::Error) -> bool {
    let twice = error.downcast_ref::<DeviceError>().is_some_and(|error| {
        matches!(
            error,
            DeviceError::PortExists(_) | DeviceError::InterfaceInUse { .. }
        )
    });
    let io = error.downcast_ref::<std::io::Error>();
    twice || io.is_some_and(|error| error.raw_os_error() == Some(libc::ENODEV))
}

async fn serve(server: Server, device: &Arc<Device>) -> anyhow::Result<()> {
    let manager = Arc::new(ServiceManager::from_environment());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let stop = async {
        stop.await;
        manager.tell("STOPPING=1");
        // Sending cannot fail, because the receiver is polled below.
        let _ = stopping.send(());
    };
    tracing::info!(address = %server.address()?, "serving P4Runtime");
    // Writing fails if standard error was closed. The switch must run nevertheless, so this ignores the error.
    let _ = writeln!(std::io::stderr(), "sluice-switch: ready");
    let address = server.address()?;
    manager.tell(&format!("READY=1\nSTATUS=serving P4Runtime at {address}"));
    tokio::spawn(keep_informed(Arc::clone(&manager), Arc::clone(device)));
    let overdue = async {
        // If the sender was dropped without a message, the server has failed. The server then returns its error.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = server.serve(stop) => Ok(result?),
        () = overdue => Ok(()),
    }
}

/// Stops the device, then the remaining tasks. Stopping the device releases the interfaces, even if a task still holds
/// a reference to it.
fn stop(runtime: Runtime, device: &Device) {
    device.stop();
    runtime.shutdown_timeout(GRACE);
}
