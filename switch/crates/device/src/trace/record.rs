// SPDX-License-Identifier: Apache-2.0
//! The trace of one packet in text form: a line for each step.

use std::fmt::{self, Write};

/// Kind of the step in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The packet arrived; a copy of it enters a pipeline.
    Enter,
    /// A parser state, with the headers it filled; the end of parsing with an error.
    Parser,
    /// An `if`.
    Condition,
    /// A table: key, entry, action.
    Table,
    /// An extern: counter, meter, register, hash, digest, ...
    Extern,
    /// `log_msg` and `assert`.
    Log,
    /// The fate of the packet or copy.
    Fate,
}

impl Kind {
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

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceLine {
    /// Its kind.
    pub kind: Kind,
    /// The object of the step: a state, a table, an extern, a fate.
    pub name: String,
    /// Details by name, in order. Numbers of the program are in hexadecimal.
    pub details: Vec<(String, String)>,
}

impl TraceLine {
    pub(super) fn new(kind: Kind, name: impl Into<String>) -> Self {
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

/// The steps of one packet and of all copies made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketTrace {
    /// Counts the packets traced since the switch started.
    pub number: u64,
    /// Its time of arrival, in microseconds since the switch started.
    pub time_us: u64,
    /// The steps.
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
