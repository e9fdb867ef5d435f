// SPDX-License-Identifier: Apache-2.0
//! Implements the target `update`: sends valid and damaged P4Runtime writes to the real server, and compares the server
//! with a simple model.
//!
//! ```text
//!   P4Info ──► info ──► generate ──► mutation ──► server ──► codes ──► model.errors   is the code allowed?
//!                                                   │                  model.apply    acknowledged updates
//!                                                   └────── read ────► model.check    does the content agree?
//! ```
//!
//! An input selects a program and then batches, until no bytes are left. Invariants:
//!
//! * A well-formed update succeeds, unless the model predicts the code of its failure.
//! * A damaged update is refused with a code that the specification allows for the damage, never INTERNAL or UNKNOWN.
//! * After every batch, a read returns the content of the model. Only acknowledged updates were applied to the model.

// Older clients still send fields that P4Runtime has deprecated.
#![allow(deprecated)]

mod canonical;
mod damage;
mod generate;
mod info;
mod model;
mod mutation;
mod mutation_kind;
mod name;
mod server;
mod values;

use sluice_p4runtime::p4info;
use sluice_p4runtime::proto::v1::forwarding_pipeline_config::Cookie;
use sluice_p4runtime::proto::v1::write_request::Atomicity;
use sluice_p4runtime::proto::v1::{ForwardingPipelineConfig, Uint128, Update, WriteRequest};
use tonic::Code;

use crate::choices::Choices;
use crate::programs::{self, Compiled};
use crate::random::Random;
use crate::target::{Tally, Target};
use generate::Generator;
use info::Info;
use model::Model;
use mutation::Mutator;
use mutation_kind::{ALL, Damage};
use server::{DEVICE, ELECTION, Server};

/// Name of the target.
pub const NAME: &str = "update";

/// Length of a new input in bytes.
const LENGTH: usize = 16 << 10;
const MAX_BATCH: usize = 40;

/// Codes that are never allowed for an update.
const NEVER: [Code; 7] = [
    Code::Internal,
    Code::Unknown,
    Code::DataLoss,
    Code::Unavailable,
    Code::Cancelled,
    Code::DeadlineExceeded,
    Code::Unauthenticated,
];

struct Subject {
    config: ForwardingPipelineConfig,
    info: Info,
}

impl Subject {
    fn new(compiled: Compiled) -> Self {
        let p4info = p4info::from_text(&compiled.p4info);
        let p4info = p4info.unwrap_or_else(|error| panic!("{}: {error}", compiled.name));
        Self {
            info: Info::new(&p4info),
            config: ForwardingPipelineConfig {
                p4info: Some(p4info),
                p4_device_config: compiled.json.into(),
                cookie: Some(Cookie { cookie: 1 }),
            },
        }
    }
}

/// Fuzz target `update`; see the module's documentation.
pub struct UpdateTarget {
    server: Server,
    subjects: Vec<Subject>,
}

impl UpdateTarget {
    /// Creates the target with two programs: `surface`, which has every P4Runtime entity, and the router.
    ///
    /// # Panics
    /// If the source tree is missing.
    pub fn new() -> Self {
        let subjects = [programs::surface(), programs::router()];
        Self {
            server: Server::start(),
            subjects: subjects.into_iter().map(Subject::new).collect(),
        }
    }
}

impl Default for UpdateTarget {
    fn default() -> Self {
        Self::new()
    }
}

impl Target for UpdateTarget {
    fn unit(&self) -> &'static str {
        "updates"
    }

    fn bar(&self) -> u64 {
        1_000_000
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        (0..8)
            .map(|seed| {
                let mut bytes = vec![seed];
                bytes.extend(Random::new(seed.into()).bytes(LENGTH));
                bytes
            })
            .collect()
    }

    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        if random.one_in(2) {
            return crate::mutate::bytes(random, input, other);
        }
        random.bytes(LENGTH)
    }

    fn run(&mut self, input: &[u8], tally: &mut Tally) {
        let mut choices = Choices::new(input);
        // The router is large, so only one input in eight uses it.
        let subject = &self.subjects[choices.below(8) / 7];
        self.server.load(subject.config.clone());
        let mut run = Run {
            server: &self.server,
            info: &subject.info,
            model: Model::new(self.server.read(&subject.info)),
        };
        while !choices.is_empty() {
            run.batch(&mut choices, tally);
        }
    }
}

/// The run of one input against the server.
struct Run<'a> {
    server: &'a Server,
    info: &'a Info,
    model: Model,
}

/// An update and its allowed results.
struct Step {
    update: Update,
    /// Damage of the update; `None` if it is well formed.
    damage: Option<Damage>,
    /// Codes of which the model expects one, if the update is not damaged. Empty if the update must succeed.
    errors: Vec<Code>,
}

impl Run<'_> {
    fn batch(&mut self, choices: &mut Choices<'_>, tally: &mut Tally) {
        let atomicity = match choices.below(8) {
            6 => Atomicity::RollbackOnError,
            7 => Atomicity::DataplaneAtomic,
            _ => Atomicity::ContinueOnError,
        };
        let steps: Vec<Step> = (0..1 + choices.below(MAX_BATCH))
            .map(|_| self.step(choices))
            .collect();
        let mut request = WriteRequest {
            device_id: DEVICE,
            election_id: Some(ELECTION),
            updates: steps.iter().map(|step| step.update.clone()).collect(),
            atomicity: atomicity.into(),
            ..WriteRequest::default()
        };
        let refused = damage_request(choices, &mut request);
        tally.add("batches", 1);
        match self.server.write(&request) {
            Ok(codes) => {
                assert_eq!(refused, None, "a request that must be refused was accepted");
                self.answered(&steps, &codes, atomicity, tally);
            }
            Err(status) => {
                let expected = refused.unwrap_or_default();
                assert!(
                    expected.contains(&status.code()),
                    "{status:?}, not {expected:?}"
                );
            }
        }
        self.model.check(self.server.read(self.info));
    }

    /// Generates an update for the model's current state. Damages about one in three updates.
    fn step(&self, choices: &mut Choices<'_>) -> Step {
        let (info, model) = (self.info, &self.model);
        let mut update = Generator { info, model }.update(choices);
        let errors = model.errors(info, &update);
        let damage = choices.one_in(3).then(|| {
            let mutation = *choices.pick(&ALL);
            Mutator { info, model }.apply(choices, mutation, &mut update)
        });
        Step {
            update,
            damage: damage.flatten(),
            errors,
        }
    }

    fn answered(
        &mut self,
        steps: &[Step],
        codes: &[Code],
        atomicity: Atomicity,
        tally: &mut Tally,
    ) {
        let undone =
            atomicity != Atomicity::ContinueOnError && codes.iter().any(|c| *c != Code::Ok);
        let before = undone.then(|| self.model.clone());
        for (step, code) in steps.iter().zip(codes) {
            tally.add("updates", 1);
            tally.add("damaged", u64::from(step.damage.is_some()));
            // An aborted update was valid itself, but the server rolled it back together with its batch.
            let code = match code {
                Code::Ok if undone => panic!("acknowledged in a batch that failed: {step:?}"),
                Code::Aborted if undone => Code::Ok,
                code => *code,
            };
            self.judge(step, code, atomicity);
            if code == Code::Ok {
                tally.add("applied", u64::from(!undone));
                self.model.apply(self.info, &step.update);
            }
        }
        if let Some(before) = before {
            assert!(
                codes.iter().any(|code| *code != Code::Aborted),
                "a batch failed, but none of its updates failed"
            );
            self.model = before;
        }
    }

    /// Checks that the code is an allowed result of the update.
    fn judge(&self, step: &Step, code: Code, atomicity: Atomicity) {
        assert!(!NEVER.contains(&code), "{code:?} for {step:?}");
        let errors = self.model.errors(self.info, &step.update);
        let cells = atomicity == Atomicity::DataplaneAtomic && code == Code::Unimplemented;
        let allowed = match &step.damage {
            None | Some(Damage::Foreseen) if errors.is_empty() => code == Code::Ok || cells,
            None | Some(Damage::Foreseen) => errors.contains(&code) || cells,
            Some(Damage::Any) => true,
            Some(Damage::Refused(codes)) => {
                codes.contains(&code)
                    || errors.contains(&code)
                    || step.errors.contains(&code)
                    || cells
            }
        };
        assert!(
            allowed,
            "{code:?} for {step:?}, where the model expects {errors:?}"
        );
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, damaged: {:?}", self.update, self.damage)
    }
}

/// Damages some of the requests, so that the server must refuse them as a whole. Returns the allowed codes.
fn damage_request(
    choices: &mut Choices<'_>,
    request: &mut WriteRequest,
) -> Option<&'static [Code]> {
    if !choices.one_in(16) {
        return None;
    }
    match choices.below(6) {
        0 => {
            request.device_id = DEVICE + 1;
            Some(&[Code::NotFound])
        }
        1 => {
            request.role = "another".into();
            Some(&[Code::NotFound, Code::PermissionDenied])
        }
        2 => {
            request.election_id = Some(Uint128 { high: 0, low: 4 });
            Some(&[Code::PermissionDenied])
        }
        3 => {
            request.election_id = Some(Uint128 { high: 1, low: 5 });
            Some(&[Code::PermissionDenied])
        }
        4 => {
            request.election_id = None;
            Some(&[Code::PermissionDenied])
        }
        _ => {
            request.atomicity = 3 + i32::from(choices.byte());
            Some(&[Code::InvalidArgument])
        }
    }
}
