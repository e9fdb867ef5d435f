// SPDX-License-Identifier: Apache-2.0
//! Formats results: as a table by section, as a summary line, or as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::case::{Case, Verdict};
use crate::outcome::Failure;

/// The result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Result {
    /// The server conforms to the specification.
    Passed,
    /// The server violates the specification.
    Failed,
    /// The case could not be tested.
    Skipped,
}

/// One line of a report.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    section: &'static str,
    name: &'static str,
    result: Result,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    milliseconds: u128,
}

/// The results of all cases that were run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
    cases: Vec<Line>,
}

impl Report {
    /// Adds the result of a case, and returns its line of the report.
    pub fn add(&mut self, case: &Case, verdict: &Verdict) -> &Line {
        let (result, reason) = match &verdict.outcome {
            Ok(()) => (Result::Passed, None),
            Err(Failure::Failed(reason)) => (Result::Failed, Some(reason.clone())),
            Err(Failure::Skipped(reason)) => (Result::Skipped, Some(reason.clone())),
        };
        match result {
            Result::Passed => self.passed += 1,
            Result::Failed => self.failed += 1,
            Result::Skipped => self.skipped += 1,
        }
        let index = self.cases.len();
        self.cases.push(Line {
            section: case.section,
            name: case.name,
            result,
            reason,
            milliseconds: verdict.took.as_millis(),
        });
        &self.cases[index]
    }

    /// Returns whether a case failed.
    pub fn has_failures(&self) -> bool {
        self.failed > 0
    }

    /// Returns the numbers of passed, failed and skipped cases in one line.
    pub fn summary(&self) -> String {
        let total = self.cases.len();
        format!(
            "{total} cases: {} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }

    /// Returns the numbers of passed, failed and skipped cases of each section, and the cases that did not pass.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut sections: Vec<&str> = Vec::new();
        for line in &self.cases {
            if !sections.contains(&line.section) {
                sections.push(line.section);
            }
        }
        let width = sections.iter().map(|s| s.len()).max().unwrap_or(0);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:width$}  passed  failed  skipped", "section");
        for section in sections {
            let count = |result| {
                let lines = self.cases.iter().filter(|line| line.section == section);
                lines.filter(|line| line.result == result).count()
            };
            let _ = writeln!(
                out,
                "{section:width$}  {:6}  {:6}  {:7}",
                count(Result::Passed),
                count(Result::Failed),
                count(Result::Skipped)
            );
        }
        out
    }

    /// Returns the whole report as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers can be written as JSON")
    }
}

impl Line {
    /// Formats the line as text.
    pub fn text(&self) -> String {
        let result = match self.result {
            Result::Passed => "ok     ",
            Result::Failed => "FAILED ",
            Result::Skipped => "skipped",
        };
        let reason = self.reason.as_deref().map_or(String::new(), |reason| {
            format!("\n         {}", reason.replace('\n', "\n         "))
        });
        format!("{result}  {}: {}{reason}", self.section, self.name)
    }
}
