// SPDX-License-Identifier: Apache-2.0
//! Finds the requested switch, and connects to it.

use std::path::Path;

use anyhow::{Context, bail};
use sluice_admin::proto::admin_client::AdminClient;
use sluice_admin::proto::{GetSwitchRequest, Switch};
use sluice_admin::{Address, find};
use tonic::transport::{Channel, Endpoint};

pub(super) type Client = AdminClient<Channel>;

/// How a user selects a switch.
pub(super) enum Target {
    /// The switch with this admin address.
    At(Address),
    /// The switch on this machine with this device id.
    Device(u64),
    /// The only switch on this machine.
    Only,
}

pub(super) async fn connect(target: &Target) -> anyhow::Result<Client> {
    let device_id = match target {
        Target::At(Address::Unix(path)) => return open(&unix(path)).await,
        Target::At(Address::Loopback(address)) => return open(&format!("http://{address}")).await,
        Target::Device(id) => Some(*id),
        Target::Only => None,
    };
    let directory = find::directory();
    let mut found = Vec::new();
    for path in find::sockets(&directory).with_context(|| directory.display().to_string())? {
        let mut client = open(&unix(&path)).await?;
        let switch = client.get_switch(GetSwitchRequest {}).await?.into_inner();
        if device_id.is_none_or(|id| id == switch.device_id) {
            found.push((client, switch));
        }
    }
    match found.len() {
        1 => Ok(found.remove(0).0),
        0 => bail!(
            "no switch{} runs here (looked in {})",
            device_id.map_or_else(String::new, |id| format!(" with device id {id}")),
            directory.display()
        ),
        _ => {
            let list: Vec<_> = found
                .iter()
                .map(|(_, switch)| describe(switch, &directory))
                .collect();
            bail!(
                "several switches run here: select one with --device-id or --admin:\n{}",
                list.join("\n")
            )
        }
    }
}

fn unix(path: &Path) -> String {
    format!("unix:{}", path.display())
}

async fn open(uri: &str) -> anyhow::Result<Client> {
    let channel = Endpoint::from_shared(uri.to_owned())?.connect().await;
    channel
        .map(AdminClient::new)
        .with_context(|| format!("no switch answers at {uri}"))
}

fn describe(switch: &Switch, directory: &Path) -> String {
    let (id, process) = (switch.device_id, switch.process_id);
    let path = directory.join(format!("{process}.sock"));
    let address = &switch.p4runtime_address;
    format!(
        "  --device-id {id}  (--admin unix:{}, P4Runtime at {address})",
        path.display()
    )
}
