// SPDX-License-Identifier: Apache-2.0
//! Defines the command line.

use clap::{Args, Parser, Subcommand};

use crate::flows::{Addresses, FlowSpace, Pick, Picker, Range};
use crate::frame::{Builder, Mac, Protocol, Shape, Size};
use crate::generator::Plan;
use crate::schedule::{Arrivals, Schedule};

/// Generates traffic on a Linux interface, and measures loss and latency.
///
/// Packets depart by the clock, independently of the network, and carry their scheduled departure time. So latencies
/// include the time for which a slow device delays the generator. The result is one JSON object on standard output. A
/// sink receives every packet from the moment when it prints `sluice-traffic: ready` on standard error. Exit codes: 0
/// measured, 1 could not be measured, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "sluice-traffic", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sends packets.
    Gen(GenArgs),
    /// Receives the packets of a `gen` with the same --run, which may run in another process or namespace.
    Sink(SinkArgs),
    /// Sends and receives packets, and counts losses.
    Run(RunArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GenArgs {
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    /// Number that distinguishes this run's packets from the packets of other runs.
    #[arg(long, default_value_t = 1)]
    pub(crate) run: u32,
}

#[derive(Debug, Args)]
pub(crate) struct SinkArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Number of the run to receive.
    #[arg(long, default_value_t = 1)]
    pub(crate) run: u32,
    /// Stop after this number of distinct packets.
    #[arg(long)]
    pub(crate) count: Option<u64>,
    /// Stop after this number of seconds.
    #[arg(long, value_parser = seconds)]
    pub(crate) duration: Option<u64>,
    /// After the first packet, stop after this number of seconds without a packet.
    #[arg(long, value_parser = seconds)]
    pub(crate) idle: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) traffic: TrafficArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Time in seconds to wait for missing packets after the last packet was sent or has arrived.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub(crate) drain: u64,
}

#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// Interface to receive on; several can be given.
    #[arg(long, required = true)]
    pub(crate) rx: Vec<String>,
    /// Size of each interface's receive ring in frames.
    #[arg(long, default_value_t = 16384, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pub(crate) ring: u32,
}

#[derive(Debug, Args)]
pub(crate) struct TrafficArgs {
    /// Interface to send on.
    #[arg(long)]
    pub(crate) tx: String,
    #[command(flatten)]
    flows: FlowArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    #[command(flatten)]
    pace: PaceArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Flows (a range is BASE or BASE+COUNT; all combinations are flows)")]
struct FlowArgs {
    /// Source addresses, IPv4 or IPv6.
    #[arg(long, value_name = "RANGE")]
    src: Addresses,
    /// Destination addresses.
    #[arg(long, value_name = "RANGE")]
    dst: Addresses,
    /// Source ports, ICMP identifiers or SPIs.
    #[arg(long, value_name = "RANGE", default_value = "1024")]
    sport: Range,
    /// Destination ports.
    #[arg(long, value_name = "RANGE", default_value = "9")]
    dport: Range,
    /// IPv6 flow labels.
    #[arg(long, value_name = "RANGE", default_value = "0")]
    flow_label: Range,
    /// Choice of each packet's flow: round-robin, random or zipf:EXPONENT.
    #[arg(long, default_value = "round-robin")]
    pick: Pick,
    /// Seed of the random generator; equal seeds generate equal traffic.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Frames")]
struct ShapeArgs {
    /// Destination MAC address: the router's.
    #[arg(long)]
    dst_mac: Mac,
    /// Source MAC address.
    #[arg(long, default_value = "02:00:00:00:00:fe")]
    src_mac: Mac,
    /// 802.1Q tag.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
    /// IP protocol: udp, tcp, icmp (echo), esp, or a number.
    #[arg(long, default_value = "udp")]
    proto: Protocol,
    /// Frame size without check sequence, or imix (60, 590 and 1514 bytes, 7:4:1).
    #[arg(long, default_value = "60")]
    size: Size,
    /// TTL or hop limit.
    #[arg(long, default_value_t = 64)]
    ttl: u8,
    /// Type of service or traffic class.
    #[arg(long, default_value_t = 0)]
    tos: u8,
    /// Set IPv4's DF bit.
    #[arg(long)]
    df: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Pace")]
struct PaceArgs {
    /// Packets per second (default: as fast as possible).
    #[arg(long, value_parser = positive)]
    rate: Option<f64>,
    /// Distribution of the time between departures.
    #[arg(long, value_enum, default_value_t = Arrivals::Constant)]
    arrivals: Arrivals,
    /// Packets per burst; the average rate stays the same.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    burst: u32,
    /// Packets to send.
    #[arg(long)]
    count: Option<u64>,
    /// Seconds to send.
    #[arg(long, value_parser = seconds)]
    duration: Option<u64>,
    /// Wait for departures by busy polling instead of sleeping, which is more exact, but uses a whole core.
    #[arg(long)]
    spin: bool,
}

impl TrafficArgs {
    /// Returns the plan of these arguments, and its number of flows.
    ///
    /// # Errors
    /// The arguments contradict each other.
    pub(crate) fn plan(&self, run: u32) -> Result<(Plan, u32), String> {
        let Self {
            flows, shape, pace, ..
        } = self;
        let is_v6 = flows.src.base.is_ipv6();
        if is_v6 != flows.dst.base.is_ipv6() {
            return Err("--src and --dst must be of one address family".to_owned());
        }
        if pace.count.is_none() && pace.duration.is_none() {
            return Err("set how much to send: --count, --duration or both".to_owned());
        }
        let is_esp = shape.proto == Protocol::Esp;
        check_numbers(
            "--sport",
            flows.sport,
            if is_esp { u32::MAX } else { 0xffff },
        )?;
        check_numbers("--dport", flows.dport, 0xffff)?;
        check_numbers("--flow-label", flows.flow_label, 0xf_ffff)?;
        let space = FlowSpace {
            sources: flows.src,
            destinations: flows.dst,
            source_numbers: flows.sport,
            destination_numbers: flows.dport,
            flow_labels: flows.flow_label,
        };
        let count = space.count()?;
        let plan = Plan {
            run,
            flows: space,
            picker: Picker::new(flows.pick, count, flows.seed),
            builder: Builder::new(shape.shape(), is_v6)?,
            schedule: Schedule::new(pace.rate, pace.arrivals, pace.burst, flows.seed),
            count: pace.count.unwrap_or(u64::MAX),
            duration: pace.duration.unwrap_or(u64::MAX),
            spin: pace.spin,
        };
        Ok((plan, count))
    }
}

impl ShapeArgs {
    fn shape(&self) -> Shape {
        Shape {
            source_mac: self.src_mac,
            destination_mac: self.dst_mac,
            vlan: self.vlan,
            protocol: self.proto,
            size: self.size,
            hop_limit: self.ttl,
            traffic_class: self.tos,
            dont_fragment: self.df,
        }
    }
}

fn check_numbers(option: &str, range: Range, most: u32) -> Result<(), String> {
    // Parsing has checked that the range ends within 32 bits.
    let last = range.base + (range.count - 1);
    if last > most {
        Err(format!("{option} ends at {last}; the maximum is {most}"))
    } else {
        Ok(())
    }
}

/// Parses seconds into nanoseconds.
fn seconds(text: &str) -> Result<u64, String> {
    match positive(text) {
        Ok(seconds) if seconds <= 1e9 => Ok((seconds * 1e9) as u64),
        _ => Err("expected seconds, more than 0 and at most 1e9".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMUM: &str = "sluice-traffic gen --tx x --dst-mac 02:00:00:00:00:01 --src 10.0.0.1";

    fn plan(arguments: &str) -> Result<u32, String> {
        let arguments = format!("{MINIMUM} {arguments}");
        let cli = Cli::try_parse_from(arguments.split(' ')).map_err(|error| error.to_string())?;
        let Command::Gen(GenArgs { traffic, run }) = cli.command else {
            unreachable!("the command is gen")
        };
        traffic.plan(run).map(|(_, flows)| flows)
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn ranges_multiply_to_flows() {
        assert_eq!(plan("--dst 10.1.0.1+10 --sport 1+100 --count 1"), Ok(1000));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        for (arguments, problem) in [
            ("--dst 10.1.0.1", "--count, --duration or both"),
            ("--dst 2001:db8::1 --count 1", "one address family"),
            (
                "--dst 10.1.0.1 --count 1 --sport 65535+2",
                "the maximum is 65535",
            ),
            ("--dst 10.1.0.1 --count 1 --proto tcp", "need 72"),
            (
                "--dst 10.1.0.1 --count 1 --proto nonsense",
                "not a protocol",
            ),
            ("--dst 10.1.0.1 --count 1 --size 10", "not a frame size"),
            ("--dst 10.1.0.1 --count 1 --rate 0", "above 0"),
            ("--dst 10.1.0.1 --duration nan", "expected seconds"),
            (
                "--dst 10.1.0.1+16777216 --sport 1+2 --count 1",
                "at most 16777216",
            ),
        ] {
            let error = plan(arguments).unwrap_err();
            assert!(error.contains(problem), "{arguments}: {error}");
        }
        assert_eq!(
            plan("--dst 10.1.0.1 --count 1 --proto esp --sport 4294967295 --size 80"),
            Ok(1)
        );
    }
}
