// SPDX-License-Identifier: Apache-2.0
//! Implements `ctl esp`, which manages the ESP engines inside a switch. The switch tells the client the path of each
//! engine's admin socket. The client then talks to the engine itself, so that keys never pass over gRPC.

use std::path::PathBuf;

use anyhow::{Context, bail};
use sluice_admin::proto::{ListPortsRequest, Port};
use sluice_esp_control::ctl::{self, Command};
use sluice_esp_control::hardening::no_core;

use super::connect::Client;
use crate::engine_ports::socket_of;

/// Sends a request to the engine at the given port, or to the only engine if no port is given.
pub(super) async fn ask(
    mut client: Client,
    port: Option<u16>,
    command: &Command,
    json: bool,
) -> anyhow::Result<()> {
    no_core().context("cannot disable core files")?;
    let found = client.list_ports(ListPortsRequest {}).await?.into_inner();
    let socket = choose(&found.ports, port)?;
    let command = match command {
        Command::Show { .. } if json => Command::Show { json },
        other => other.clone(),
    };
    ctl::run(&socket, command)
}

fn choose(ports: &[Port], wanted: Option<u16>) -> anyhow::Result<PathBuf> {
    let engine = |port: &Port| Some((port.number, socket_of(&port.name)?.to_owned()));
    let engines: Vec<_> = ports.iter().filter_map(engine).collect();
    let meant =
        |(number, _): &&(u32, PathBuf)| wanted.is_none_or(|port| u32::from(port) == *number);
    let mut chosen = engines.iter().filter(meant);
    match (chosen.next(), chosen.next()) {
        (Some((_, socket)), None) => Ok(socket.clone()),
        (Some(_), Some(_)) => {
            let numbers: Vec<_> = engines.iter().map(|(port, _)| port.to_string()).collect();
            bail!(
                "there are engines at ports {}: select one with --port",
                numbers.join(", ")
            )
        }
        (None, _) => match wanted {
            Some(port) => {
                bail!("there is no engine at port {port} (see `sluice-switch ctl ports`)")
            }
            None => bail!("this switch has no engine: start it with --engine-port PORT"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_engine_is_meant_unless_one_is_named() {
        let port = |number, name: &str| Port {
            number,
            name: name.into(),
            ..Port::default()
        };
        let one = [port(1, "eth0"), port(9, "engine:/nine")];
        let two = [&one[..], &[port(10, "engine:/ten")]].concat();
        assert_eq!(choose(&one, None).unwrap(), PathBuf::from("/nine"));
        assert_eq!(choose(&two, Some(10)).unwrap(), PathBuf::from("/ten"));
        for (ports, wanted, said) in [
            (&two[..], None, "ports 9, 10: select one"),
            (&one, Some(1), "no engine at port 1"),
            (&one[..1], None, "--engine-port"),
        ] {
            let error = choose(ports, wanted).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
