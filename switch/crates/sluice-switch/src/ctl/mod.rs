// SPDX-License-Identifier: Apache-2.0
//! Implements `sluice-switch ctl`, which queries a running switch. Prints tables for people, or JSON for programs
//! (`--json`).

mod connect;
mod esp;
mod render;
mod state;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use sluice_admin::Address;
use sluice_admin::proto::*;

use connect::{Client, Target};

/// Inspect and configure a running switch: ports, counters, tables, traces of packets.
#[derive(Debug, Parser)]
#[command(name = "sluice-switch ctl", version = crate::version::VERSION, max_term_width = 100)]
struct CtlOptions {
    /// Admin address of the switch: unix:PATH or 127.0.0.1:PORT (default: the only switch that runs on this host)
    #[arg(long, value_name = "ADDRESS", global = true)]
    admin: Option<Address>,

    /// Select one of several switches on this host by its device id
    #[arg(long, value_name = "ID", global = true, conflicts_with = "admin")]
    device_id: Option<u64>,

    /// Print JSON: one document, or one line for each step of a trace
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show identity, program and engine of the switch
    Show,
    /// Show ports and their statistics
    Ports,
    /// Attach a network interface as a port
    AddPort {
        /// Port number and interface. For measurements also replay:FILE (the frames of a pcap file, from memory,
        /// repeated without end) or discard:NAME
        #[arg(value_name = "PORT@IFACE", value_parser = crate::options::interface)]
        port: (u16, String),
    },
    /// Detach a port and release its interface
    RemovePort {
        /// Port number
        port: u16,
    },
    /// Reset the statistics of ports
    ResetPorts {
        /// Port number (default: all ports)
        port: Option<u16>,
    },
    /// Show the queues in which packets wait before egress while a port is congested
    Queues,
    /// Set the capacity of queues
    SetQueueDepth {
        /// Capacity in packets
        packets: u32,
        /// Port number (default: all ports, present and future)
        port: Option<u16>,
        /// Priority of the queue (default: all priorities)
        priority: Option<u32>,
    },
    /// Set the highest rate of queues
    SetQueueRate {
        /// Packets per second; 0 for no limit
        rate: u64,
        /// Port number (default: all ports, present and future)
        port: Option<u16>,
        /// Priority of the queue (default: all priorities)
        priority: Option<u32>,
    },
    /// Show clone sessions ("mirrors") and multicast groups with their replicas
    Mirrors,
    /// Read a register of the program, or one of its cells
    Register {
        /// Name of the register, or the last part of the name
        name: String,
        /// Index of the cell (default: all cells)
        index: Option<u32>,
    },
    /// Write one cell of a register, or all
    WriteRegister {
        /// Name of the register, or the last part of the name
        name: String,
        /// Index of the cell, or `all`
        #[arg(value_parser = state::cell)]
        index: state::CellSelection,
        /// Value, in decimal or hexadecimal (0x...)
        value: String,
    },
    /// Show counters that do not belong to a port: drops and punts by name
    Counters {
        /// Leave out counters that are 0
        #[arg(long)]
        nonzero: bool,
    },
    /// Show the occupancy of tables
    Tables {
        /// Leave out empty tables
        #[arg(long)]
        nonempty: bool,
    },
    /// Measure the time that packets spend, by parser state, table and condition
    Profile {
        /// Duration of the measurement
        #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
        seconds: f64,
        /// Measure one packet in N
        #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
    },
    /// Show and choose the lookup algorithms of longest-prefix tables
    Fib {
        #[command(subcommand)]
        action: FibAction,
    },
    /// Add, delete and show SAs of an ESP engine inside the switch (--engine-port)
    Esp {
        /// Port of the engine (default: the only engine)
        #[arg(long, value_name = "PORT")]
        port: Option<u16>,
        #[command(subcommand)]
        command: sluice_esp_control::ctl::Command,
    },
    /// Trace a packet as if it arrived now, without side effects: the switch neither sends nor counts it
    DryRun {
        /// Ingress port; the CPU port for a packet-out
        port: u16,
        /// The frame in hexadecimal
        #[arg(value_parser = frame)]
        frame: Frame,
    },
    /// Trace packets step by step
    Trace {
        /// Condition on packets: port=N (of the switch), src=PREFIX, dst=PREFIX, ip=PREFIX (either), protocol=NAME,
        /// sport=N, dport=N, l4port=N (either), ethertype=0xNNNN, data=OFFSET:HEX; repeat for several conditions
        #[arg(long, value_name = "CONDITION")]
        filter: Vec<String>,
        /// Stop after N packets
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
}

#[derive(Debug, Subcommand)]
enum FibAction {
    /// Show algorithms and sizes
    Show {
        /// Name of one table, or the last part of the name (default: all)
        table: Option<String>,
    },
    /// Pin an algorithm, or let the switch choose again
    Set {
        /// Name of the table, or the last part of the name
        table: String,
        /// The algorithm, as `ctl fib bench` names it, or `auto`. To select one VRF only, put the VRF before the
        /// algorithm (or the values of all exact fields of the key, separated by commas)
        #[arg(value_names = ["VRF", "ALGORITHM"], num_args = 1..=2, required = true)]
        choice: Vec<String>,
    },
    /// Measure every algorithm on a copy of the routes
    Bench {
        /// Name of the table, or the last part of the name
        table: String,
        /// The VRF (default: the VRF with the most routes)
        vrf: Option<String>,
    },
}

/// The bytes of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame(Vec<u8>);

/// Parses a frame in hexadecimal. Colons and spaces between the bytes are ignored.
fn frame(text: &str) -> Result<Frame, String> {
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | ' ')).collect();
    let bad = || format!("{text:?} is not an even number of hexadecimal digits");
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| bad());
    let bytes: Result<_, _> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map(Frame)
}

/// Splits the values of exact fields, which are separated by commas.
fn exact(vrf: Option<&String>) -> Vec<String> {
    let fields = vrf.into_iter().flat_map(|vrf| vrf.split(','));
    fields.map(str::to_owned).collect()
}

/// Runs the client with the arguments after `ctl`.
pub(crate) fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = OsString::from("sluice-switch ctl");
    let options = match CtlOptions::try_parse_from(std::iter::once(name).chain(arguments)) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = runtime
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(run(&options)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The error means that the reader of the output has closed the pipe. That is not a failure.
        Err(error) if render::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-switch ctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &CtlOptions) -> anyhow::Result<()> {
    let target = match (&options.admin, options.device_id) {
        (Some(address), _) => Target::At(address.clone()),
        (None, Some(id)) => Target::Device(id),
        (None, None) => Target::Only,
    };
    let client = connect::connect(&target).await?;
    ask(client, options)
        .await
        .map_err(|error| match error.downcast::<tonic::Status>() {
            // Prints only the message of the status. The code is for programs.
            Ok(status) => anyhow::anyhow!("{} ({:?})", status.message(), status.code()),
            Err(other) => other,
        })
}

async fn ask(mut client: Client, options: &CtlOptions) -> anyhow::Result<()> {
    let json = options.json;
    match &options.command {
        Command::Show => {
            let found = client.get_switch(GetSwitchRequest {}).await?.into_inner();
            render::show(&found, json, || render::switch(&found))
        }
        Command::Ports => {
            let found = client.list_ports(ListPortsRequest {}).await?.into_inner();
            render::show(&found, json, || render::ports(&found.ports))
        }
        Command::AddPort {
            port: (number, interface),
        } => {
            let (number, interface) = (u32::from(*number), interface.clone());
            let request = AddPortRequest { number, interface };
            let found = client.add_port(request).await?.into_inner();
            render::show(&found, json, || render::ports(std::slice::from_ref(&found)))
        }
        Command::RemovePort { port } => {
            let number = u32::from(*port);
            let found = client
                .remove_port(RemovePortRequest { number })
                .await?
                .into_inner();
            render::show(&found, json, String::new)
        }
        Command::ResetPorts { port } => state::reset_ports(client, *port, json).await,
        Command::Queues => state::queues(client, json).await,
        Command::SetQueueDepth {
            packets,
            port,
            priority,
        } => state::set_queues(client, (*port, *priority), Some(*packets), None, json).await,
        Command::SetQueueRate {
            rate,
            port,
            priority,
        } => state::set_queues(client, (*port, *priority), None, Some(*rate), json).await,
        Command::Mirrors => state::mirrors(client, json).await,
        Command::Register { name, index } => state::register(client, name, *index, json).await,
        Command::WriteRegister { name, index, value } => {
            state::write_register(client, name, *index, value, json).await
        }
        Command::Counters { nonzero } => {
            let mut found = client
                .get_counters(GetCountersRequest {})
                .await?
                .into_inner();
            for list in [&mut found.device, &mut found.program] {
                list.retain(|counter| !nonzero || counter.value != 0);
            }
            render::show(&found, json, || render::counters(&found))
        }
        Command::Tables { nonempty } => {
            let mut found = client.get_tables(GetTablesRequest {}).await?.into_inner();
            let used = |table: &Table| table.entries.is_some_and(|entries| entries.used != 0);
            found.tables.retain(|table| !nonempty || used(table));
            render::show(&found, json, || render::tables(&found))
        }
        Command::Profile { seconds, every } => {
            let (seconds, every) = (*seconds, *every);
            let request = GetProfileRequest { seconds, every };
            let found = client.get_profile(request).await?.into_inner();
            render::show(&found, json, || render::profile(&found))
        }
        Command::Fib { action } => ask_fib(client, action, json).await,
        Command::Esp { port, command } => esp::ask(client, *port, command, json).await,
        Command::DryRun { port, frame } => {
            let (port, packet) = (u32::from(*port), frame.0.clone());
            let trace = client.dry_run(DryRunRequest { port, packet }).await?;
            render::trace(&trace.into_inner(), json)
        }
        Command::Trace { filter, count } => {
            let request = TraceRequest {
                filter: filter.clone(),
                count: count.unwrap_or(0),
            };
            let mut stream = client.trace(request).await?.into_inner();
            while let Some(trace) = stream.message().await? {
                render::trace(&trace, json)?;
            }
            Ok(())
        }
    }
}

async fn ask_fib(mut client: Client, action: &FibAction, json: bool) -> anyhow::Result<()> {
    match action {
        FibAction::Show { table } => {
            let table = table.clone().unwrap_or_default();
            let found = client.list_fibs(ListFibsRequest { table }).await?;
            let found = found.into_inner();
            render::show(&found, json, || render::fibs(&found.fibs))
        }
        FibAction::Set { table, choice } => {
            let (algorithm, vrf) = match &choice[..] {
                [vrf, algorithm] => (algorithm, Some(vrf)),
                _ => (&choice[0], None),
            };
            let request = SetFibRequest {
                table: table.clone(),
                exact: exact(vrf),
                algorithm: if algorithm == "auto" {
                    String::new()
                } else {
                    algorithm.clone()
                },
            };
            let found = client.set_fib(request).await?.into_inner();
            render::show(&found, json, || render::fibs(&found.fibs))
        }
        FibAction::Bench { table, vrf } => {
            let request = BenchFibRequest {
                table: table.clone(),
                exact: exact(vrf.as_ref()),
            };
            let found = client.bench_fib(request).await?.into_inner();
            render::show(&found, json, || render::fib_trials(&found))
        }
    }
}

/// Returns the definition of the command line, for completion.
pub(crate) fn command() -> clap::Command {
    CtlOptions::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_hexadecimal_digits() {
        let bytes = |text| frame(text).map(|frame| frame.0);
        assert_eq!(bytes("0a:ff 00"), Ok(vec![10, 255, 0]));
        assert_eq!(bytes(""), Ok(vec![]));
        for wrong in ["0", "0g", "é0", "0x00"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
