// SPDX-License-Identifier: Apache-2.0
//! Implements `sluice-traffic`, a fast generator and sink for tests and benchmarks.
//!
//! To send, [`cli`] makes a [`generator::Plan`]. For each packet, [`schedule`] sets the departure time, [`flows`] picks
//! the flow, and [`frame`] builds the frame around a [`probe`]. To receive, [`sink`] reads from the interfaces,
//! [`inspect`] checks each frame, [`tally`] counts and collects the latencies. [`report`] formats the result. Interfaces are accessed by `sluice-ports` (AF_PACKET).

mod cli;
mod clock;
mod flows;
mod frame;
mod generator;
mod inspect;
mod probe;
mod report;
mod schedule;
mod sink;
mod tally;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Release},
};
use std::thread;

use anyhow::Context;
use clap::{CommandFactory, Parser, error::ErrorKind};
use sluice_ports::PortCounters;
use sluice_ports::af_packet::BatchTransmitter;

use cli::{Cli, Command, GenArgs, RunArgs, SinkArgs, TrafficArgs};
use generator::Plan;
use report::{ReceivedReport, Report, SentReport};
use sink::Sink;
use tally::Tally;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match measure(cli.command) {
        Ok(report) => match serde_json::to_string_pretty(&report) {
            Ok(json) => {
                println!("{json}");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error.into()),
        },
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("sluice-traffic: {error:#}");
    ExitCode::FAILURE
}

fn measure(command: Command) -> anyhow::Result<Report> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
    }
    let (sent, received) = match command {
        Command::Gen(arguments) => (Some(generate(&arguments, &stop)?), None),
        Command::Sink(arguments) => (None, Some(receive(&arguments, &stop)?)),
        Command::Run(arguments) => {
            let (sent, received) = run(&arguments, &stop)?;
            (Some(sent), Some(received))
        }
    };
    let lost = sent.as_ref().zip(received.as_ref());
    let lost = lost.map(|(sent, received)| sent.packets.saturating_sub(received.unique));
    Ok(Report {
        sent,
        received,
        lost,
        cpu_seconds: clock::cpu_seconds(),
    })
}

/// Returns the plan of the arguments. If the arguments contradict each other, ends the program with the exit code for
/// wrong usage.
fn plan(traffic: &TrafficArgs, run: u32) -> (Plan, Vec<u64>) {
    match traffic.plan(run) {
        Ok((plan, flows)) => (plan, vec![0; flows as usize]),
        Err(message) => Cli::command()
            .error(ErrorKind::ValueValidation, message)
            .exit(),
    }
}

fn open(interface: &str) -> anyhow::Result<(BatchTransmitter, Arc<PortCounters>)> {
    let counters = Arc::new(PortCounters::default());
    let port = BatchTransmitter::open(interface, Arc::clone(&counters))
        .with_context(|| format!("cannot open {interface} for sending"))?;
    Ok((port, counters))
}

fn generate(arguments: &GenArgs, stop: &AtomicBool) -> anyhow::Result<SentReport> {
    let (mut plan, mut sequences) = plan(&arguments.traffic, arguments.run);
    let (mut port, counters) = open(&arguments.traffic.tx)?;
    let sent = plan.send(&mut port, &mut sequences, stop);
    Ok(SentReport::new(&sent, counters.read()))
}

fn receive(arguments: &SinkArgs, stop: &AtomicBool) -> anyhow::Result<ReceivedReport> {
    let mut sink = Sink::open(&arguments.input.rx, arguments.input.ring as usize)?;
    eprintln!("sluice-traffic: ready");
    let mut tally = Tally::new(arguments.run);
    let start = clock::now();
    let is_over = |tally: &Tally, now: u64| {
        let silence = tally.first.map_or(0, |_| now - tally.last);
        arguments.count.is_some_and(|count| tally.has(count))
            || arguments
                .duration
                .is_some_and(|duration| now - start >= duration)
            || arguments.idle.is_some_and(|idle| silence >= idle)
    };
    sink.receive(&mut tally, stop, is_over)
        .context("receiving")?;
    Ok(ReceivedReport::new(&tally, &sink.reports()))
}

fn run(arguments: &RunArgs, stop: &AtomicBool) -> anyhow::Result<(SentReport, ReceivedReport)> {
    // The number of the run is random. So packets of an earlier run, which may still be in queues, are not counted.
    let run = sluice_random::mix(clock::now() ^ u64::from(std::process::id())) as u32;
    let (mut plan, mut sequences) = plan(&arguments.traffic, run);
    let mut sink = Sink::open(&arguments.input.rx, arguments.input.ring as usize)?;
    let (mut port, counters) = open(&arguments.traffic.tx)?;
    let mut tally = Tally::new(run);
    // Time at which sending ended, or 0 if it has not ended.
    let ended = AtomicU64::new(0);
    let is_over = |tally: &Tally, now: u64| match ended.load(Acquire) {
        0 => false,
        ended => {
            tally.has(counters.read().tx_packets)
                || now.saturating_sub(ended.max(tally.last)) >= arguments.drain
        }
    };
    let (sent, received) = thread::scope(|scope| {
        // A signal ends only the sending. Packets in flight are still received.
        let never = AtomicBool::new(false);
        let (sink, tally) = (&mut sink, &mut tally);
        let receiver = scope.spawn(move || sink.receive(tally, &never, is_over));
        let sent = plan.send(&mut port, &mut sequences, stop);
        ended.store(clock::now(), Release);
        (sent, receiver.join())
    });
    match received {
        Ok(received) => received.context("receiving")?,
        Err(_) => {
            anyhow::bail!("the receiving thread panicked: this is a defect of sluice-traffic")
        }
    }
    let received = ReceivedReport::new(&tally, &sink.reports());
    Ok((SentReport::new(&sent, counters.read()), received))
}
