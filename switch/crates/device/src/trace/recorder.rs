// SPDX-License-Identifier: Apache-2.0
//! Translates the engine's steps into text that uses the program's names.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

use sluice_engine::{Extern, Fate, InstanceType, Stage, Trace, TraceStep};
use sluice_program::{Program, Table, TableId};
use sluice_tables::{ActionRef, Color, KeyField, Match, MatchTarget};

use super::record::{PacketTrace, StepKind, TraceLine};

/// Number of the packet's bytes that a trace shows.
const SHOWN: usize = 64;

/// Ports to which a packet can be sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownPorts {
    /// Ports that are attached.
    pub(crate) attached: BTreeSet<u32>,
    /// The CPU port, if there is one.
    pub(crate) cpu: Option<u32>,
}

/// Records the steps of packets, one packet after the other.
pub(crate) struct Recorder {
    program: Arc<Program>,
    ports: KnownPorts,
    lines: Vec<TraceLine>,
}

impl Recorder {
    pub(crate) fn new(program: Arc<Program>) -> Self {
        Self {
            program,
            ports: KnownPorts::default(),
            lines: Vec::new(),
        }
    }

    /// Begins a record with an arriving packet.
    pub(crate) fn begin(&mut self, port: u32, packet: &[u8], ports: KnownPorts) {
        self.ports = ports;
        self.lines.clear();
        let shown = &packet[..packet.len().min(SHOWN)];
        let more = if packet.len() > SHOWN { "..." } else { "" };
        let line = TraceLine::new(StepKind::Enter, "switch")
            .with("port", port)
            .with("bytes", packet.len())
            .with("data", hex(shown) + more);
        self.lines.push(line);
    }

    /// Ends the record and returns it.
    pub(crate) fn end(&mut self, number: u64, time_us: u64) -> PacketTrace {
        PacketTrace {
            number,
            time_us,
            lines: std::mem::take(&mut self.lines),
        }
    }

    fn push(&mut self, line: TraceLine) {
        self.lines.push(line);
    }

    fn enter(stage: Stage, instance_type: u32) -> TraceLine {
        let (name, port) = match stage {
            Stage::Ingress(port) => ("ingress", port),
            Stage::Egress(port) => ("egress", port),
        };
        let line = TraceLine::new(StepKind::Enter, name).with("port", port);
        line.with("as", instance_name(instance_type))
    }

    fn extracted(&mut self, header: &str) {
        let state = self
            .lines
            .iter_mut()
            .rev()
            .find(|line| line.kind == StepKind::Parser);
        let Some(state) = state else { return };
        match state
            .details
            .iter_mut()
            .find(|(name, _)| name == "extracts")
        {
            Some((_, headers)) => {
                headers.push(',');
                headers.push_str(header);
            }
            None => state
                .details
                .push(("extracts".to_owned(), header.to_owned())),
        }
    }

    fn parser_error(&self, error: u32) -> TraceLine {
        let known = self
            .program
            .errors
            .iter()
            .find(|(_, value)| *value == error);
        let name = known.map_or_else(|| error.to_string(), |(name, _)| name.clone());
        TraceLine::new(StepKind::Parser, "error").with("error", name)
    }

    fn condition(&self, id: sluice_program::ConditionalId, value: bool) -> TraceLine {
        let conditional = self.program.conditional(id);
        let mut line = TraceLine::new(StepKind::Condition, &conditional.name).with("value", value);
        if let Some(source) = &conditional.source {
            line = line.with("source", source).with("text", &source.fragment);
        }
        line
    }

    fn table(
        &self,
        id: TableId,
        key: &[u8],
        entry: Option<&Match>,
        action: Option<ActionRef<'_>>,
    ) -> TraceLine {
        let table = self.program.table(id);
        let mut line = TraceLine::new(StepKind::Table, &table.name);
        for field in &table.key {
            let value = &key[field.offset..field.offset + field.bytes()];
            line = line.with(&format!("key.{}", field.name), number(value));
        }
        line = match entry {
            None => line.with("result", "miss"),
            Some(entry) => self.entry(line.with("result", "hit"), table, entry),
        };
        match action {
            None => line.with("action", "none"),
            Some(action) => self.action(line, action),
        }
    }

    fn entry(&self, line: TraceLine, table: &Table, entry: &Match) -> TraceLine {
        let fields: Vec<_> = entry.key.iter().map(key_field).collect();
        let mut line = line.with("entry", fields.join(","));
        if table.needs_priority() {
            line = line.with("priority", entry.priority);
        }
        match entry.target {
            MatchTarget::Action => line,
            MatchTarget::Member(id) => line.with("member", id),
            MatchTarget::Group(id) => line.with("group", id),
            MatchTarget::OneShot => line.with("group", "one-shot"),
        }
    }

    fn action(&self, line: TraceLine, call: ActionRef<'_>) -> TraceLine {
        let action = self.program.action(call.action);
        let mut line = line.with("action", &action.name);
        for param in &action.params {
            let first = usize::from(param.slot.word);
            let words = &call.params[first..first + param.slot.words()];
            line = line.with(&param.name, number_of_words(words));
        }
        line
    }

    fn extern_use(&self, used: Extern<'_>) -> TraceLine {
        let program = &self.program;
        let line = |kind: &str, name: &str| TraceLine::new(StepKind::Extern, kind).with("of", name);
        let bare = |kind: &str| TraceLine::new(StepKind::Extern, kind);
        match used {
            Extern::Count(id, index) => {
                line("counter", &program.counter(id).name).with("index", index)
            }
            Extern::Meter(id, index, color) => line("meter", &program.meter(id).name)
                .with("index", index)
                .with("color", color_name(color)),
            Extern::DirectMeter(id, color) => {
                line("direct_meter", &program.meter(id).name).with("color", color_name(color))
            }
            Extern::RegisterRead(id, index, words) => {
                line("register_read", &program.register(id).name)
                    .with("index", index)
                    .with("value", number_of_words(words))
            }
            Extern::RegisterWrite(id, index, words) => {
                line("register_write", &program.register(id).name)
                    .with("index", index)
                    .with("value", number_of_words(words))
            }
            Extern::Hash(id, value) => {
                line("hash", &program.calculation(id).name).with("value", number_of_words(&[value]))
            }
            Extern::Random(value) => bare("random").with("value", number_of_words(&[value])),
            Extern::Digest(id) => line("digest", &program.digest(id).name),
            Extern::Clone(session) => bare("clone").with("session", session),
            Extern::Resubmit => bare("resubmit"),
            Extern::Recirculate => bare("recirculate"),
            Extern::Truncate(bytes) => bare("truncate").with("bytes", bytes),
            Extern::MarkToDrop => bare("mark_to_drop"),
        }
    }

    fn fate(&self, fate: Fate) -> TraceLine {
        let line = |name: &str| TraceLine::new(StepKind::Fate, name);
        let dropped = |reason: &str| line("dropped").with("reason", reason);
        match fate {
            Fate::Transmitted { port, bytes } => {
                let line = if self.ports.cpu == Some(port) {
                    line("packet_in")
                } else if self.ports.attached.contains(&port) {
                    line("transmitted")
                } else {
                    dropped("no_such_port")
                };
                line.with("port", port).with("bytes", bytes)
            }
            Fate::DroppedIngress => dropped("dropped_ingress"),
            Fate::DroppedEgress => dropped("dropped_egress"),
            Fate::Queued { port, priority } => {
                line("queued").with("port", port).with("priority", priority)
            }
            Fate::QueueFull { port, priority } => dropped("dropped_queue_full")
                .with("port", port)
                .with("priority", priority),
            Fate::Priority(priority) => dropped("dropped_priority").with("priority", priority),
            Fate::NoReplica(group) => dropped("dropped_no_replica").with("group", group),
            Fate::PassLimit => dropped("dropped_pass_limit"),
            Fate::ParserLimit => dropped("dropped_parser_limit"),
            Fate::Multicast { group, copies } => line("multicast")
                .with("group", group)
                .with("copies", copies),
            Fate::Cloned { session, copies } => line("cloned")
                .with("session", session)
                .with("copies", copies),
            Fate::NoSession(session) => line("not_cloned")
                .with("reason", "clone_no_session")
                .with("session", session),
            Fate::Resubmitted => line("resubmitted"),
            Fate::Recirculated => line("recirculated"),
        }
    }
}

impl Trace for Recorder {
    fn step(&mut self, step: TraceStep<'_>) {
        let line = match step {
            TraceStep::At(_) => return,
            TraceStep::Enter(stage, instance_type) => Self::enter(stage, instance_type),
            TraceStep::State(id) => TraceLine::new(StepKind::Parser, &self.program.state(id).name),
            TraceStep::Extract(id) => {
                let program = Arc::clone(&self.program);
                return self.extracted(&program.header(id).name);
            }
            TraceStep::ParserError(error) => self.parser_error(error),
            TraceStep::ChecksumError => TraceLine::new(StepKind::Parser, "checksum_error"),
            TraceStep::Condition(id, value) => self.condition(id, value),
            TraceStep::Table {
                table,
                key,
                entry,
                action,
            } => self.table(table, key, entry, action),
            TraceStep::Extern(used) => self.extern_use(used),
            TraceStep::Log(text) => TraceLine::new(StepKind::Log, "log_msg").with("text", text),
            TraceStep::AssertionFailed => TraceLine::new(StepKind::Log, "assertion_failed"),
            TraceStep::OutOfRange => TraceLine::new(StepKind::Extern, "index_out_of_range"),
            TraceStep::Fate(fate) => self.fate(fate),
        };
        self.push(line);
    }
}

fn instance_name(instance_type: u32) -> String {
    let known = [
        (InstanceType::Normal, "normal"),
        (InstanceType::IngressClone, "ingress_clone"),
        (InstanceType::EgressClone, "egress_clone"),
        (InstanceType::Recirculated, "recirculated"),
        (InstanceType::Replicated, "replicated"),
        (InstanceType::Resubmitted, "resubmitted"),
    ];
    let found = known.iter().find(|(kind, _)| *kind as u32 == instance_type);
    found.map_or_else(|| instance_type.to_string(), |(_, name)| (*name).to_owned())
}

fn color_name(color: Color) -> &'static str {
    match color {
        Color::Green => "green",
        Color::Yellow => "yellow",
        Color::Red => "red",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Formats a big-endian number in hexadecimal.
fn number(bytes: &[u8]) -> String {
    let digits = hex(bytes);
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}

fn number_of_words(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    number(&bytes)
}

/// Formats a field of an entry's key.
fn key_field(field: &KeyField) -> String {
    match field {
        KeyField::Exact(value) | KeyField::Optional(value) => number(value),
        KeyField::Lpm { value, prefix_len } => format!("{}/{prefix_len}", number(value)),
        KeyField::Ternary { value, mask } => format!("{}&&&{}", number(value), number(mask)),
        KeyField::Range { low, high } => format!("{}..{}", number(low), number(high)),
        KeyField::DontCare => "*".to_owned(),
    }
}
