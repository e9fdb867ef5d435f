// SPDX-License-Identifier: Apache-2.0
//! Defines the command line: the flags of simple_switch_grpc, and some additional options.
//!
//! The switch lacks some options of BMv2. If such an option has no effect on the results, the switch ignores it with a
//! warning. Otherwise the switch refuses to start, and gives the reason.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser, ValueEnum};
use sluice_admin::Address;
use sluice_device::{EngineKind, Limits, PortId};
use sluice_p4runtime::listen::Address as P4RuntimeAddress;
use sluice_unix_socket::Access;

use crate::engine_ports;
use crate::log_file::Rotation;
use crate::tls::TlsOptions;

/// A P4 switch that runs p4c's BMv2 JSON and speaks P4Runtime; a stand-in for simple_switch_grpc.
#[derive(Debug, Parser)]
#[command(
    name = "sluice-switch",
    version = crate::version::VERSION,
    disable_version_flag = true,
    infer_long_args = true,
    max_term_width = 100
)]
pub(crate) struct Options {
    /// The program: BMv2 JSON made by p4c. Not with --no-p4
    pub(crate) json: Option<PathBuf>,

    /// Attach network interface IFACE as port PORT; repeat for each port. If an interface is missing or a port is given
    /// twice, the switch reports it and starts without this port
    #[arg(short = 'i', long = "interface", value_name = "PORT@IFACE", value_parser = interface)]
    pub(crate) interfaces: Vec<(PortId, String)>,

    /// Run an ESP engine inside the switch as port PORT: it encrypts and decrypts packets that the program sends there.
    /// `sluice-switch ctl esp` manages it by the Unix socket SOCKET (mode 0600; default: one in /run/sluice-switch).
    /// Repeat for several engines. The process then writes no core file
    #[arg(long = "engine-port", value_name = "PORT[@SOCKET]", value_parser = engine_ports::parse)]
    pub(crate) engine_ports: Vec<engine_ports::Requested>,

    /// Directory in which engines reserve sequence numbers; it must survive restarts of the process and of the machine
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = "/var/lib/sluice-switch"
    )]
    pub(crate) engine_state_directory: PathBuf,

    /// Exit with code 1 if an interface is missing or a port is given twice
    #[arg(long)]
    pub(crate) strict_ports: bool,

    /// The id by which P4Runtime clients name this device
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub(crate) device_id: u64,

    /// Serve P4Runtime at unix:PATH or HOST:PORT (BMv2's default is 0.0.0.0:9559). An address that is not loopback
    /// requires mutual TLS
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9559")]
    pub(crate) grpc_server_addr: P4RuntimeAddress,

    /// Mode of P4Runtime's Unix socket: users who may write to it control the switch
    #[arg(long, value_name = "OCTAL", default_value = "0660", value_parser = socket_mode)]
    grpc_socket_mode: u32,

    /// Group of P4Runtime's Unix socket, by name or number (default: the group of the process)
    #[arg(long, value_name = "GROUP", value_parser = sluice_unix_socket::group)]
    grpc_socket_group: Option<u32>,

    /// Allow P4Runtime without client certificates, or without TLS, on an address that is not loopback. Every client
    /// that reaches the address then controls the switch. For isolated laboratories
    #[arg(long)]
    grpc_insecure_any_address: bool,

    /// Accept writes with the primary's election id from any connection, as P4Runtime allows. By default, only the
    /// connection of the primary's stream may write
    #[arg(long)]
    pub(crate) writes_from_any_connection: bool,

    /// Restrict roles without a configuration to the entities that the program assigns to them, or to no role, by
    /// @p4runtime_role. By default such roles may write everything
    #[arg(long)]
    pub(crate) roles_by_annotation: bool,

    /// Port number of packet-ins and packet-outs
    #[arg(long, value_name = "PORT")]
    pub(crate) cpu_port: Option<PortId>,

    /// The value of egress_spec that drops a packet
    #[arg(long, value_name = "PORT", default_value_t = 511)]
    pub(crate) drop_port: PortId,

    /// Start without a program and wait for a client to load one
    #[arg(long)]
    pub(crate) no_p4: bool,

    /// P4Info of the program (text format, or binary if the name ends in .bin); clients then find the program loaded
    #[arg(long, value_name = "FILE")]
    pub(crate) p4info: Option<PathBuf>,

    /// Write IFACE_in.pcap and IFACE_out.pcap into DIR (default: the current directory)
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub(crate) pcap: Option<PathBuf>,

    /// Read packets from IFACE_in.pcap and write them to IFACE_out.pcap; reading starts after SECONDS
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) use_files: Option<i64>,

    /// Log to standard output
    #[arg(long)]
    pub(crate) log_console: bool,

    /// Log to NAME.txt
    #[arg(long, value_name = "NAME", conflicts_with = "log_console")]
    pub(crate) log_file: Option<PathBuf>,

    /// Log level; `trace` logs every step of every packet (default with --log-console or --log-file: trace, as in BMv2)
    #[arg(short = 'L', long, value_enum)]
    log_level: Option<Level>,

    /// Size in bytes at which a log file is rotated
    #[arg(long, value_name = "BYTES", default_value_t = 5 << 20, value_parser = clap::value_parser!(u64).range(1..))]
    log_file_max_size: u64,

    /// Number of rotated log files to keep
    #[arg(long, value_name = "N", default_value_t = 3)]
    log_file_max_files: u32,

    /// Serve `sluice-switch ctl` at unix:PATH or 127.0.0.1:PORT, or `none` (default: a socket in /run/sluice-switch)
    #[arg(long, value_name = "ADDRESS", value_parser = admin)]
    pub(crate) admin: Option<Admin>,

    /// Serve GET /metrics, for Prometheus, at unix:PATH or 127.0.0.1:PORT (default: nowhere)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics_address: Option<Address>,

    /// Maximum number of multicast groups
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_mc_groups: Option<u32>,

    /// Maximum number of replicas in all multicast groups and clone sessions (BMv2's level 1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_l1_entries: Option<u32>,

    /// Maximum number of replicas, by the name of BMv2's level 2; the smaller of the two limits applies
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_l2_entries: Option<u32>,

    /// Refuse to start with more ports than this
    #[arg(long, value_name = "N", default_value_t = 512)]
    max_port_count: usize,

    /// Number of threads that process packets; packets of one port stay in order
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) workers: u8,

    /// Niceness of the threads that process packets. A negative value gives these threads priority over the threads
    /// that serve controllers, and requires CAP_SYS_NICE. Without the capability, the threads keep the niceness of the
    /// process
    #[arg(long, value_name = "N", default_value_t = -10, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    pub(crate) worker_nice: i32,

    /// Number of queues of each port. The highest priority is served first; a packet whose standard_metadata.priority is
    /// N or higher is dropped
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) priority_queues: u32,

    /// Engine that runs programs: machine code (native), or the reference interpreter
    #[arg(
        long,
        value_name = "interpreter|native",
        env = "SLUICE_ENGINE",
        default_value_t
    )]
    pub(crate) engine: EngineKind,

    /// Size of each port's receive ring in frames
    #[arg(long, value_name = "FRAMES", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pub(crate) rx_ring: u32,

    /// Print the newest supported version of BMv2 JSON
    #[arg(long)]
    pub(crate) json_version: bool,

    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,

    #[command(flatten)]
    pub(crate) tls: TlsOptions,

    #[command(flatten)]
    pub(crate) foreign: Foreign,
}

/// Log levels, with BMv2's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
    Off,
}

/// BMv2's options that this switch accepts but ignores.
#[derive(Debug, clap::Args)]
pub(crate) struct Foreign {
    #[arg(long, hide = true)]
    thrift_port: Option<String>,
    #[arg(long, hide = true)]
    nanolog: Option<String>,
    #[arg(long, hide = true)]
    notifications_addr: Option<String>,
    /// Ignored, because this switch writes every line at once.
    #[arg(long, hide = true)]
    log_flush: bool,
    #[arg(long, hide = true)]
    load_modules: Option<String>,
    #[arg(long, hide = true)]
    dump_packet_data: Option<String>,
    #[arg(long, hide = true)]
    disable_swap: bool,
    #[arg(long, hide = true)]
    debugger: bool,
    #[arg(long, hide = true)]
    debugger_addr: Option<String>,
    #[arg(long, hide = true)]
    restore_state: Option<String>,
    #[arg(long, hide = true)]
    packet_in: Option<String>,
    #[arg(long, hide = true)]
    dp_grpc_server_addr: Option<String>,
}

impl Foreign {
    /// Returns why the switch must not start: one of the given options would change the results, and this switch lacks
    /// it.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        let refusals = [
            (
                self.load_modules.is_some(),
                "--load-modules: all externs are part of the switch, so it loads no shared objects",
            ),
            (
                self.debugger,
                "--debugger: the switch has no nanomsg debugger",
            ),
            (
                self.restore_state.is_some(),
                "--restore-state: P4Runtime clients write the state",
            ),
            (
                self.packet_in.is_some(),
                "--packet-in: packets come from interfaces or pcap files",
            ),
            (
                self.dp_grpc_server_addr.is_some(),
                "--dp-grpc-server-addr: packets come from interfaces or pcap files",
            ),
            (
                self.disable_swap,
                "--disable-swap: SetForwardingPipelineConfig always swaps the program",
            ),
        ];
        refusals
            .into_iter()
            .find_map(|(given, reason)| given.then_some(reason))
    }

    /// Returns the given options that have no effect.
    pub(crate) fn ignored(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.thrift_port.is_some(), "--thrift-port"),
            (self.nanolog.is_some(), "--nanolog"),
            (self.notifications_addr.is_some(), "--notifications-addr"),
            (self.debugger_addr.is_some(), "--debugger-addr"),
            (self.dump_packet_data.is_some(), "--dump-packet-data"),
        ]
        .into_iter()
        .filter_map(|(given, name)| given.then_some(name))
    }
}

pub(crate) fn interface(argument: &str) -> Result<(PortId, String), String> {
    let (port, name) = argument
        .split_once('@')
        .ok_or("expected PORT@IFACE, such as 1@eth0")?;
    let port = port
        .parse()
        .map_err(|_| format!("{port:?} is not a port number"))?;
    if name.is_empty() {
        return Err("the interface has no name".into());
    }
    Ok((port, name.into()))
}

/// The address of the admin service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admin {
    /// Do not serve the admin service.
    None,
    /// Serve the admin service at this address.
    At(Address),
}

fn socket_mode(argument: &str) -> Result<u32, String> {
    match u32::from_str_radix(argument, 8) {
        Ok(mode) if mode & !0o777 == 0 && mode & 0o600 == 0o600 => Ok(mode),
        _ => Err(
            "expected an octal mode from 0600 to 0777 that lets the owner read and write"
                .to_owned(),
        ),
    }
}

fn admin(argument: &str) -> Result<Admin, String> {
    match argument {
        "none" => Ok(Admin::None),
        address => address.parse().map(Admin::At),
    }
}

impl Options {
    /// Returns the log level for `--log-console` and `--log-file`.
    pub(crate) fn log_level(&self) -> Level {
        self.log_level.unwrap_or(Level::Trace)
    }

    /// Returns the limits of log files.
    pub(crate) fn rotation(&self) -> Rotation {
        let (max_size, max_files) = (self.log_file_max_size, self.log_file_max_files);
        Rotation {
            max_size,
            max_files,
        }
    }

    /// Returns the limits for the objects that programs do not limit: multicast groups and replicas.
    pub(crate) fn limits(&self) -> Limits {
        let usual = Limits::default();
        let or = |given: Option<u32>, usual: usize| given.map_or(usual, |given| given as usize);
        let replicas = [self.max_l1_entries, self.max_l2_entries];
        Limits {
            multicast_groups: or(self.max_mc_groups, usual.multicast_groups),
            replicas: or(replicas.into_iter().flatten().min(), usual.replicas),
            ..usual
        }
    }

    /// Parses arguments as BMv2 does: after `--`, options of the target may follow.
    pub(crate) fn read(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut separated = false;
        let joined = arguments.into_iter().filter(|argument| {
            let separator = !separated && argument == "--";
            separated |= separator;
            !separator
        });
        Self::try_parse_from(joined)
    }

    /// Checks that the options are compatible, which clap cannot check.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_program()?;
        self.check_ports()?;
        self.check_servers()?;
        match self.foreign.refusal() {
            Some(reason) => Err(reason.into()),
            None => Ok(()),
        }
    }

    fn check_program(&self) -> Result<(), String> {
        if self.json.is_none() && !self.no_p4 {
            return Err("no program: give a BMv2 JSON file, or start with --no-p4".into());
        }
        if self.json.is_some() && self.no_p4 {
            return Err("a JSON file and --no-p4 cannot be used together".into());
        }
        if self.p4info.is_some() && self.no_p4 {
            return Err("--p4info needs a JSON file, so it cannot be used with --no-p4".into());
        }
        Ok(())
    }

    fn check_ports(&self) -> Result<(), String> {
        if self.cpu_port == Some(0) {
            return Err("--cpu-port 0 is not valid".into());
        }
        if self.cpu_port == Some(self.drop_port) {
            return Err("--cpu-port and --drop-port are the same".into());
        }
        if let Some(directory) = self.pcap.as_ref().filter(|directory| !directory.is_dir()) {
            return Err(format!(
                "--pcap: {} is not a directory",
                directory.display()
            ));
        }
        let (there, most) = (
            self.interfaces.len() + self.engine_ports.len(),
            self.max_port_count,
        );
        if there > most {
            return Err(format!(
                "--max-port-count is {most}, but the command line has {there} ports"
            ));
        }
        if self.use_files.is_some() && self.workers > 1 {
            return Err("--use-files needs --workers 1, which keeps the order of the files".into());
        }
        Ok(())
    }

    fn check_servers(&self) -> Result<(), String> {
        self.tls.check()?;
        let unix = matches!(self.grpc_server_addr, P4RuntimeAddress::Unix(_));
        if unix && self.tls.is_on() {
            return Err(
                "--grpc-server-ssl is for TCP only: restrict a Unix socket with --grpc-socket-mode"
                    .into(),
            );
        }
        if self.grpc_socket_group.is_some() && !unix {
            return Err("--grpc-socket-group needs --grpc-server-addr unix:PATH".into());
        }
        Ok(())
    }

    /// Returns the mode and the group of P4Runtime's Unix socket.
    pub(crate) fn socket_access(&self) -> Access {
        Access {
            mode: self.grpc_socket_mode,
            group: self.grpc_socket_group,
        }
    }

    /// Refuses an address beyond loopback, unless the options require client certificates or explicitly allow insecure
    /// access. Any client that reaches such an address would control the switch.
    pub(crate) fn check_reach(&self, local: bool) -> Result<(), String> {
        if local || self.tls.is_mutual() || self.grpc_insecure_any_address {
            return Ok(());
        }
        Err(format!(
            "--grpc-server-addr {} is not loopback, so every client that reaches it could control the switch. Require \
             client certificates (--grpc-server-ssl, --grpc-server-cert, --grpc-server-key, --grpc-server-cacert and \
             --grpc-server-with-client-auth), or serve on 127.0.0.1 or unix:PATH. In an isolated laboratory, \
             --grpc-insecure-any-address allows this address",
            self.grpc_server_addr
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        let arguments = std::iter::once("sluice-switch").chain(line.split_whitespace());
        let options = Options::read(arguments.map(OsString::from)).map_err(|e| e.to_string())?;
        options.check()?;
        Ok(options)
    }

    #[test]
    fn the_line_of_the_p4lang_tutorials() {
        let options = read(
            "-i 1@s1-eth1 -i 2@s1-eth2 --pcap /tmp --nanolog ipc:///tmp/bm-0-log.ipc --device-id 3 \
             build/basic.json --log-console --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 255",
        )
        .unwrap();
        assert_eq!(
            options.interfaces,
            [(1, "s1-eth1".into()), (2, "s1-eth2".into())]
        );
        assert_eq!(options.json, Some("build/basic.json".into()));
        assert_eq!(options.pcap, Some("/tmp".into()));
        assert_eq!((options.device_id, options.cpu_port), (3, Some(255)));
        assert_eq!(options.grpc_server_addr.to_string(), "0.0.0.0:50051");
        let refused = options.check_reach(false).unwrap_err();
        assert!(
            refused.contains("--grpc-server-with-client-auth"),
            "{refused}"
        );
        assert_eq!(
            options.foreign.ignored().collect::<Vec<_>>(),
            ["--thrift-port", "--nanolog"]
        );
    }

    #[test]
    fn grpc_is_on_loopback_unless_told_otherwise() {
        let options = read("--no-p4").unwrap();
        assert_eq!(options.grpc_server_addr.to_string(), "127.0.0.1:9559");
        assert!(options.check_reach(true).is_ok());
    }

    #[test]
    fn what_is_not_loopback_takes_mutual_tls_or_a_word_that_says_so() {
        let tls = "--grpc-server-ssl --grpc-server-cert c --grpc-server-key k";
        let mutual = "--grpc-server-cacert a --grpc-server-with-client-auth";
        for (line, served) in [
            (String::new(), false),
            (tls.to_owned(), false),
            (format!("{tls} {mutual}"), true),
            ("--grpc-insecure-any-address".to_owned(), true),
        ] {
            let options = read(&format!("--no-p4 --grpc-server-addr 0.0.0.0:1 {line}")).unwrap();
            assert_eq!(options.check_reach(false).is_ok(), served, "{line}");
        }
    }

    #[test]
    fn a_unix_socket_has_a_mode_and_a_group() {
        let line = "--no-p4 --grpc-server-addr unix:/run/x.sock";
        let access = |line: &str| read(line).unwrap().socket_access();
        assert_eq!(access(line), Access::default());
        let asked = access(&format!(
            "{line} --grpc-socket-mode 600 --grpc-socket-group 7"
        ));
        assert_eq!((asked.mode, asked.group), (0o600, Some(7)));
    }

    #[test]
    fn a_log_that_is_asked_for_has_everything_unless_told_otherwise() {
        assert_eq!(
            read("x.json --log-console").unwrap().log_level(),
            Level::Trace
        );
        assert_eq!(
            read("x.json --log-console -L warn").unwrap().log_level(),
            Level::Warn
        );
        let rotation = read("x.json --log-file x --log-file-max-files 1")
            .unwrap()
            .rotation();
        assert_eq!((rotation.max_size, rotation.max_files), (5_242_880, 1));
    }

    #[test]
    fn the_smaller_limit_counts() {
        let limits = read("x.json --max-mc-groups 5 --max-l1-entries 7 --max-l2-entries 6")
            .unwrap()
            .limits();
        assert_eq!((limits.multicast_groups, limits.replicas), (5, 6));
        assert_eq!(read("x.json").unwrap().limits(), Limits::default());
    }

    #[test]
    fn the_operator_is_served_on_a_socket_on_loopback_or_not_at_all() {
        assert_eq!(
            read("x.json --admin none").unwrap().admin,
            Some(Admin::None)
        );
        let loopback = Admin::At(Address::Loopback(([127, 0, 0, 1], 9560).into()));
        assert_eq!(
            read("x.json --admin 127.0.0.1:9560").unwrap().admin,
            Some(loopback)
        );
        assert_eq!(read("x.json").unwrap().admin, None);
    }

    #[test]
    fn a_long_option_may_be_abbreviated_where_that_is_not_ambiguous() {
        let options = read(
            "x.json --dev 3 --thrift 9090 --notif ipc:///x --cpu 255 --log-c -- --grpc-server-a unix:/x.sock",
        )
        .unwrap();
        assert_eq!((options.device_id, options.cpu_port), (3, Some(255)));
        assert_eq!(options.grpc_server_addr.to_string(), "unix:/x.sock");
        assert!(options.log_console);
        assert_eq!(
            options.foreign.ignored().collect::<Vec<_>>(),
            ["--thrift-port", "--notifications-addr"]
        );
        // Each of these names is also the beginning of another option's name, and must still be recognized.
        let exact = read("x.json --pcap . --log-file x --debugger-addr ipc:///x").unwrap();
        assert_eq!(exact.log_file, Some("x".into()));
        for ambiguous in ["--log x", "--grpc-server x", "--max 3"] {
            assert!(read(&format!("x.json {ambiguous}")).is_err(), "{ambiguous}");
        }
    }

    #[test]
    fn the_engine_has_a_name() {
        for kind in [EngineKind::Interpreter, EngineKind::Native] {
            let options = read(&format!("x.json --engine {kind}")).unwrap();
            assert_eq!(options.engine, kind);
        }
        assert_eq!(read("x.json").unwrap().engine, EngineKind::Native);
    }

    #[test]
    fn pcap_without_a_directory_means_the_current_one() {
        assert_eq!(read("x.json --pcap").unwrap().pcap, Some(".".into()));
        assert_eq!(
            read("x.json --pcap --log-console").unwrap().pcap,
            Some(".".into())
        );
    }

    #[test]
    fn what_is_refused_says_why() {
        for (line, reason) in [
            ("--no-p4 --engine turbo", "neither interpreter nor native"),
            ("", "--no-p4"),
            ("x.json --no-p4", "cannot be used together"),
            ("--no-p4 -i eth0", "PORT@IFACE"),
            ("--no-p4 -i x@eth0", "not a port number"),
            ("--no-p4 --cpu-port 0", "not valid"),
            ("--no-p4 --cpu-port 511", "the same"),
            ("--no-p4 --pcap /nonexistent", "not a directory"),
            ("--no-p4 --grpc-server-ssl", "needs --grpc-server-cert"),
            (
                "--no-p4 --grpc-server-cert c --grpc-server-key k",
                "needs --grpc-server-ssl",
            ),
            (
                "--no-p4 --grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-with-client-auth",
                "needs --grpc-server-cacert",
            ),
            (
                "--no-p4 --grpc-server-addr localhost",
                "neither unix:PATH nor",
            ),
            ("--no-p4 --grpc-server-addr unix:", "no path"),
            ("--no-p4 --grpc-socket-mode 4777", "octal mode"),
            ("--no-p4 --grpc-socket-mode 066", "octal mode"),
            ("--no-p4 --grpc-socket-group no-such-group", "no group"),
            ("--no-p4 --grpc-socket-group 7", "group needs"),
            (
                "--no-p4 --grpc-server-addr unix:/x --grpc-server-ssl --grpc-server-cert c --grpc-server-key k",
                "is for TCP",
            ),
            ("--no-p4 --use-files 0 --workers 2", "needs --workers 1"),
            (
                "--no-p4 -i 1@a --engine-port 2 --max-port-count 1",
                "2 ports",
            ),
            ("--no-p4 --engine-port eth0", "not a port number"),
            ("--no-p4 --load-modules x.so", "shared objects"),
            ("--no-p4 --admin 0.0.0.0:9560", "loopback"),
            ("--no-p4 --metrics-address 0.0.0.0:9110", "loopback"),
            ("--no-p4 --metrics-address /run/x", "neither unix:PATH nor"),
            ("--no-p4 --debugger", "debugger"),
            (
                "--no-p4 --packet-in ipc:///tmp/x",
                "interfaces or pcap files",
            ),
            ("--no-p4 --restore-state x", "P4Runtime clients"),
            (
                "--no-p4 --dp-grpc-server-addr 127.0.0.1:1",
                "interfaces or pcap files",
            ),
            ("--no-p4 --disable-swap", "always swaps the program"),
            ("--no-p4 --max-mc-groups 0", "invalid value"),
            ("--no-p4 --log-file-max-size 0", "invalid value"),
            ("--no-p4 --log-console --log-file x", "cannot be used with"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
