// SPDX-License-Identifier: Apache-2.0
//! Runs the admin service, in addition to P4Runtime.

use std::sync::Arc;

use anyhow::Context;
use sluice_admin::{About, Address, PortPolicy, Server};
use sluice_device::{Device, InterfaceOptions};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::options::{Admin, Options};

/// The running admin service, if there is one.
pub(crate) struct RunningAdmin(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

/// Returns what the device itself does not know: the version, the device id and the P4Runtime address.
pub(crate) fn about(options: &Options, p4runtime_address: String) -> About {
    About {
        version: crate::version::VERSION,
        device_id: options.device_id,
        p4runtime_address,
    }
}

/// Serves the admin service at the address in the options. Logs a warning if the default socket cannot be created.
/// Fails if an address from the command line cannot be used.
pub(crate) async fn start(
    options: &Options,
    device: Arc<Device>,
    about: About,
) -> anyhow::Result<RunningAdmin> {
    let ports = match options.use_files {
        Some(_) => PortPolicy::Refused,
        None => PortPolicy::Interfaces(interface_options(options)),
    };
    let server = match &options.admin {
        Some(Admin::None) => return Ok(RunningAdmin(None)),
        Some(Admin::At(address)) => {
            let server = Server::bind(address, device, about, ports).await;
            server.with_context(|| format!("--admin {address}"))?
        }
        None => {
            let address = Address::default_socket();
            match Server::bind(&address, device, about, ports).await {
                Ok(server) => server,
                Err(error) => {
                    tracing::warn!(%address, %error, "cannot serve `sluice-switch ctl`");
                    return Ok(RunningAdmin(None));
                }
            }
        }
    };
    tracing::info!(address = server.address()?, "serving `sluice-switch ctl`");
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move {
        // `stopped` yields a message of `RunningAdmin::stop`, or an error if the switch has failed. The service ends in
        // both cases.
        if let Err(error) = server.serve(async { drop(stopped.await) }).await {
            tracing::error!(%error, "`sluice-switch ctl` is no longer served");
        }
    });
    Ok(RunningAdmin(Some((stop, task))))
}

/// Returns the options with which interfaces are attached, at the start and later.
pub(crate) fn interface_options(options: &Options) -> InterfaceOptions {
    InterfaceOptions {
        ring_frames: options.rx_ring as usize,
        capture: options.pcap.clone(),
    }
}

impl RunningAdmin {
    /// Ends the service without waiting for clients that are still reading a trace.
    pub(crate) fn stop(self) {
        if let Some((stop, task)) = self.0 {
            // The service may have ended already.
            let _ = stop.send(());
            task.abort();
        }
    }
}
