// SPDX-License-Identifier: Apache-2.0
//! Defines test cases, and runs them.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::bench::{Bench, Target};
use crate::outcome::{Failure, Outcome};

/// Time limit of a case.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The result of running a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The outcome.
    pub outcome: Outcome,
    /// Duration of the run.
    pub took: Duration,
}

/// The steps of a case, as a running future.
pub type Running<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// A test case.
#[derive(Clone, Copy)]
pub struct Case {
    /// The specification's section, by its title.
    pub section: &'static str,
    /// Name of the case: what the server must do.
    pub name: &'static str,
    steps: for<'a> fn(&'a mut Bench) -> Running<'a>,
}

impl Case {
    /// Creates a case with these steps.
    pub const fn new(
        section: &'static str,
        name: &'static str,
        steps: for<'a> fn(&'a mut Bench) -> Running<'a>,
    ) -> Self {
        Self {
            section,
            name,
            steps,
        }
    }

    /// Returns section and name, as used by filters and reports.
    pub fn full_name(&self) -> String {
        format!("{}: {}", self.section, self.name)
    }

    /// Runs the case against a server.
    pub async fn run(&self, target: &Target) -> Verdict {
        let start = Instant::now();
        let mut bench = Bench::new(target.clone());
        let steps = tokio::time::timeout(LIMIT, (self.steps)(&mut bench)).await;
        let late = || {
            let limit = LIMIT.as_secs();
            Err(Failure::Failed(format!(
                "the case did not end within {limit} seconds"
            )))
        };
        Verdict {
            outcome: steps.unwrap_or_else(|_| late()),
            took: start.elapsed(),
        }
    }
}
