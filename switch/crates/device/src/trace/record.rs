// SPDX-License-Identifier: Apache-2.0
//! Formats the trace of one packet as text, one line for each step.

use std::fmt::{self, Write};

/// Kind of a traced step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// The packet arrived, or a copy of the packet enters a pipeline.
    Enter,
    /// A parser state with the headers that it filled, or the end of parsing with an error.
    Parser,
    /// An `if`.
    Condition,
    /// A table lookup: key, entry, action.
    Table,
    /// An extern: counter, meter, register, hash, digest, ...
    Extern,
    /// `log_msg` and `assert`.
    Log,
    /// Fate of the packet or copy, such as sent or dropped.
    Fate,
}

impl StepKind {
    /// Returns the kind's name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Parser => "parser",
            Self::Condition => "condition",
            Self::Table => "table",
            Self::Extern => "extern",
            Self::Log => "log",
            Self::Fate => "fate",
        }
    }
}

/// One step of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceLine {
    /// Kind of the step.
    pub kind: StepKind,
    /// Object of the step, such as a parser state, a table or an extern.
    pub name: String,
    /// Details by name, in order. Values from the P4 program are in hexadecimal.
    pub details: Vec<(String, String)>,
}

impl TraceLine {
    pub(super) fn new(kind: StepKind, name: impl Into<String>) -> Self {
        Self {
            kind,
            name: name.into(),
            details: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.details.push((name.to_owned(), value.to_string()));
        self
    }
}

/// Steps of one packet and of all its copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketTrace {
    /// Number of the packet. Traced packets are counted since the switch started.
    pub number: u64,
    /// Time at which the packet arrived, in microseconds since the switch started.
    pub time_us: u64,
    /// The steps, in order.
    pub lines: Vec<TraceLine>,
}

/// Formats a step as one line of text: `#NUMBER SECONDS KIND NAME detail=value ...`.
pub fn format_line<'a>(
    number: u64,
    time_us: u64,
    kind: &str,
    name: &str,
    details: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
    let mut line = format!("#{number} {seconds}.{micros:06} {kind:<9} {name}");
    for (detail, value) in details {
        let quote = if value.contains([' ', '"']) || value.is_empty() {
            "'"
        } else {
            ""
        };
        // Writing to a string cannot fail.
        let _ = write!(line, " {detail}={quote}{value}{quote}");
    }
    line
}

impl PacketTrace {
    /// Returns the steps as text, one line each.
    pub fn text(&self) -> impl Iterator<Item = String> + '_ {
        self.lines.iter().map(|line| {
            let details = line.details.iter().map(|(name, value)| (&**name, &**value));
            format_line(
                self.number,
                self.time_us,
                line.kind.name(),
                &line.name,
                details,
            )
        })
    }
}
