// SPDX-License-Identifier: Apache-2.0
//! Implements the client, which adds, deletes and shows SAs of a running engine.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Subcommand;
use serde_json::Value;
use sluice_esp::spec::Direction;
use zeroize::Zeroizing;

use crate::protocol::{MAX_REQUEST, Request, SaId};
use crate::sas;

/// A command for the engine.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Add the SAs of a JSON file (`-`: standard input) in order; stop at the first refusal
    Add {
        /// File with one SA, or a list of SAs
        file: PathBuf,
    },
    /// Delete an outbound SA
    DeleteOut {
        /// Number of the SA
        sa: u32,
    },
    /// Delete an inbound SA
    DeleteIn {
        /// SPI of the SA
        spi: u32,
        /// VRF of the SA
        #[arg(default_value_t = 0)]
        vrf: u16,
    },
    /// Show SAs and counters
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Sends a command to the engine at this admin socket, and prints the answer. The caller must have called
/// [`crate::hardening::no_core`] before, because the process handles keys.
///
/// # Errors
/// The engine does not run, or it refuses the request.
pub fn run(socket: &Path, command: Command) -> anyhow::Result<()> {
    let mut connection = Connection::open(socket)?;
    match command {
        Command::Add { file } => {
            for spec in sas::read(&file)? {
                let number = spec.sa;
                let added = connection.ask(&Request::Add(Box::new(spec)));
                added.with_context(|| format!("SA {number}"))?;
            }
        }
        Command::DeleteOut { sa } => {
            let which = SaId {
                direction: Direction::Out,
                sa: Some(sa),
                spi: None,
                vrf: 0,
            };
            connection.ask(&Request::Delete(which))?;
        }
        Command::DeleteIn { spi, vrf } => {
            let which = SaId {
                direction: Direction::In,
                sa: None,
                spi: Some(spi),
                vrf,
            };
            connection.ask(&Request::Delete(which))?;
        }
        Command::Show { json } => {
            let status = connection.ask(&Request::Status {})?["status"].take();
            let mut out = io::stdout().lock();
            if json {
                writeln!(out, "{status}")?;
            } else {
                show(&mut out, &status)?;
            }
        }
    }
    Ok(())
}

struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    fn open(socket: &Path) -> anyhow::Result<Self> {
        let path = socket.display();
        let stream = UnixStream::connect(socket).with_context(|| {
            format!("{path}: cannot connect to the engine; check that it runs, and that you may open its socket")
        })?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    fn ask(&mut self, request: &Request) -> anyhow::Result<Value> {
        // Allocates the full size at once, because the line contains keys: a growing vector would leave copies of the
        // keys.
        let mut line = Zeroizing::new(Vec::with_capacity(MAX_REQUEST));
        serde_json::to_writer(&mut *line, request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        let answer: Value =
            serde_json::from_str(&answer).context("the engine's answer is not JSON")?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => bail!("{error}"),
            None => Ok(answer),
        }
    }
}

/// Prints one line for each SA, and below this line another line for each drop reason.
fn show(out: &mut impl Write, status: &Value) -> io::Result<()> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    for sa in status["sas"].as_array().into_iter().flatten() {
        let spec = &sa["spec"];
        writeln!(
            out,
            "{:3} sa {} spi {:#x} bundle {} vrf {} {} {} {}, sequence {}, {} packets, {} bytes",
            text(&spec["direction"]),
            spec["sa"],
            spec["spi"].as_u64().unwrap_or_default(),
            spec["bundle"],
            spec["vrf"],
            text(&spec["mode"]),
            text(&spec["algorithm"]),
            text(&sa["age"]),
            sa["sequence"],
            sa["counters"]["packets"],
            sa["counters"]["bytes"],
        )?;
        show_drops(out, &sa["counters"])?;
    }
    writeln!(out, "packets without an SA")?;
    show_drops(out, &status["others"])?;
    let port = &status["port"];
    writeln!(
        out,
        "port: {} frames received, {} lost before the engine; {} frames sent, {} lost on the way to the switch",
        port["received"], port["receive_dropped"], port["sent"], port["send_dropped"]
    )
}

fn show_drops(out: &mut impl Write, counters: &Value) -> io::Result<()> {
    for (reason, count) in counters["drops"].as_object().into_iter().flatten() {
        writeln!(out, "      dropped: {reason} {count}")?;
    }
    Ok(())
}
