// SPDX-License-Identifier: Apache-2.0
//! From a program to pages of machine code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use sluice_program::{Program, Slot};

use super::code::Pages;
use super::facts::{self, Facts};
use super::frame::{Frame, MIDDLE};
use super::lower::{Lower, Statics};
use super::variants::Interest;
use crate::config::Config;

/// A part of the program that is one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Parser and ingress, and all that follows where the traffic manager is not asked for anything
    /// ([`super::forward`]).
    Forward = 0,
    Egress = 1,
    Deparser = 2,
    /// The parser alone, for packets that ingress has cloned.
    Parser = 3,
}

/// First those that look at metadata in memory: [`Part::Forward`] writes there what they read.
const PARTS: [Part; 4] = [Part::Parser, Part::Egress, Part::Deparser, Part::Forward];

/// Why a program could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// This machine is of a kind for which no code can be made.
    #[error("no native code for this machine: {0}")]
    Machine(String),
    /// The code generator refused what it was given: a mistake in this crate.
    #[error("code generation: {0}")]
    Generator(String),
    /// No memory for code.
    #[error("memory for code: {0}")]
    Memory(#[from] std::io::Error),
}

/// What came of compiling a program.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Constructs that the interpreter would have to run. Empty for every program that is known.
    pub not_compiled: Vec<String>,
    /// Bytes of machine code.
    pub code_bytes: usize,
    /// How long it took.
    pub time: Duration,
}

/// A compiled program. Shared by the engines that run it.
pub struct Code {
    program: Arc<Program>,
    config: Config,
    pages: Pages,
    entries: [Option<Entry>; 4],
    most_header_bytes: usize,
    /// Metadata fields that somebody looks at in the header vector.
    observed: Vec<Slot>,
    /// What the code refers to by address.
    _statics: Statics,
}

/// Takes the address [`MIDDLE`] bytes into a frame.
type Entry = unsafe extern "C" fn(*mut u8) -> u64;

impl Code {
    /// Compiles a program. The drop port and the limits of steps become part of the code.
    ///
    /// # Errors
    /// When code cannot be made for this machine, or not be placed in memory.
    pub fn compile(
        program: &Arc<Program>,
        config: &Config,
    ) -> Result<(Arc<Self>, Report), NativeError> {
        let begin = Instant::now();
        let isa = isa()?;
        let facts = Facts::new(program);
        let mut statics = Statics::default();
        let mut not_compiled = Vec::new();
        let mut functions = Vec::new();
        for part in PARTS {
            let needed = match part {
                Part::Parser => facts::clones(program),
                Part::Egress => program.egress.first.is_some(),
                Part::Forward | Part::Deparser => true,
            };
            if needed {
                let build = |statics: &mut Statics, not_compiled: &mut Vec<String>| {
                    build(part, program, config, &facts, statics, not_compiled, &isa)
                };
                if part == Part::Forward && facts.keep.get() {
                    // What is found out on the way: metadata must all be in memory, or which of it is read there.
                    build(&mut Statics::default(), &mut Vec::new());
                    if facts.whole.get() {
                        facts.keep.set(false);
                    } else {
                        facts.pruned.set(true);
                    }
                }
                let function = build(&mut statics, &mut not_compiled);
                functions.push((part, function));
            }
        }
        let compiled: Vec<Result<(Part, Vec<u8>), NativeError>> = std::thread::scope(|scope| {
            let isa = &isa;
            let threads: Vec<_> = functions
                .into_iter()
                .map(|(part, function)| scope.spawn(move || Ok((part, generate(function, isa)?))))
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                let panicked = || NativeError::Generator("it panicked".into());
                thread.join().unwrap_or_else(|_| Err(panicked()))
            };
            threads.into_iter().map(join).collect()
        });
        let mut all = Vec::new();
        let mut entries = [None; 4];
        for compiled in compiled {
            let (part, code) = compiled?;
            all.resize(all.len().next_multiple_of(64), 0);
            entries[part as usize] = Some(all.len());
            all.extend(code);
        }
        let pages = Pages::new(&all)?;
        let entries = entries.map(|entry: Option<usize>| {
            // SAFETY: at this offset begins a function that was generated with this signature, for the
            // layout of frames that this build has.
            entry.map(|entry| unsafe {
                std::mem::transmute::<*const u8, Entry>(pages.address(entry))
            })
        });
        let headers = program.deparser.order.iter();
        let code = Self {
            most_header_bytes: headers.map(|id| program.header(*id).bytes as usize).sum(),
            program: Arc::clone(program),
            config: config.clone(),
            entries,
            pages,
            observed: facts.observed(),
            _statics: statics,
        };
        let report = Report {
            not_compiled,
            code_bytes: code.pages.bytes(),
            time: begin.elapsed(),
        };
        Ok((Arc::new(code), report))
    }

    /// The program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What it was compiled with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of all headers that the deparser can emit.
    pub(super) fn most_header_bytes(&self) -> usize {
        self.most_header_bytes
    }

    /// Whether a metadata field is looked at in the header vector.
    pub(super) fn looks_at(&self, slot: Slot) -> bool {
        self.observed.iter().any(|field| field.bit() == slot.bit())
    }

    /// Whether a part has anything to do.
    pub(super) fn has(&self, part: Part) -> bool {
        self.entries[part as usize].is_some()
    }

    /// Runs a part on a packet of the program; 0 if it has nothing to do.
    #[inline]
    pub(super) fn run(&self, part: Part, frame: &mut Frame<'_>) -> u64 {
        let Some(entry) = self.entries[part as usize] else {
            return 0;
        };
        let frame: *mut Frame<'_> = frame;
        // SAFETY: a frame is longer than that. The pages live as long as this value. The frame points to what it says it does, and to
        // nothing that others use meanwhile.
        // The code stays inside the header vector, whose layout the loader checked, and inside the
        // packet, since every read is preceded by the check of its length.
        unsafe { entry(frame.cast::<u8>().add(MIDDLE)) }
    }
}

/// The machine that this runs on.
fn isa() -> Result<OwnedTargetIsa, NativeError> {
    if !cfg!(target_arch = "x86_64") {
        // Elsewhere the instruction cache must be told of new code.
        return Err(NativeError::Machine(std::env::consts::ARCH.into()));
    }
    let generator = |error: &dyn std::fmt::Display| NativeError::Generator(error.to_string());
    let mut flags = settings::builder();
    let verify = if cfg!(debug_assertions) {
        "true"
    } else {
        "false"
    };
    for (name, value) in [
        ("opt_level", "speed"),
        ("enable_verifier", verify),
        ("probestack_strategy", "inline"),
        ("unwind_info", "false"),
    ] {
        flags.set(name, value).map_err(|error| generator(&error))?;
    }
    let isa = cranelift_native::builder().map_err(|error| NativeError::Machine(error.into()))?;
    isa.finish(settings::Flags::new(flags))
        .map_err(|error| generator(&error))
}

/// One part as intermediate code.
fn build(
    part: Part,
    program: &Program,
    config: &Config,
    facts: &Facts,
    statics: &mut Statics,
    not_compiled: &mut Vec<String>,
    isa: &OwnedTargetIsa,
) -> Function {
    let call_conv = isa.default_call_conv();
    let mut signature = Signature::new(call_conv);
    signature.params.push(AbiParam::new(I64));
    signature.returns.push(AbiParam::new(I64));
    let mut function = Function::with_name_signature(UserFuncName::user(0, part as u32), signature);
    let mut context = FunctionBuilderContext::new();
    let builder = FunctionBuilder::new(&mut function, &mut context);
    let mut lower = Lower::new(
        program,
        config,
        facts,
        statics,
        not_compiled,
        builder,
        call_conv,
    );
    match part {
        Part::Forward => {
            lower.start();
            if facts.keep.get() {
                lower.keep_fields();
            }
            lower.forward();
        }
        Part::Parser => {
            lower.parser(&Interest::default(), &mut |lower| lower.finish(0));
        }
        Part::Egress => {
            let mut egress = lower.graph(&program.egress, Interest::default());
            lower.enter_pipeline(&mut egress);
            for end in lower.pipeline(egress) {
                lower.enter(end);
                lower.finish(0);
            }
        }
        Part::Deparser => {
            lower.deparser(&|lower, bytes| {
                lower.b.ins().return_(&[bytes]);
            });
        }
    }
    lower.b.seal_all_blocks();
    lower.b.finalize(isa.frontend_config());
    function
}

/// One part as machine code that refers to nothing but absolute addresses.
fn generate(function: Function, isa: &OwnedTargetIsa) -> Result<Vec<u8>, NativeError> {
    let mut context = Context::for_function(function);
    let compiled = context
        .compile(&**isa, &mut ControlPlane::default())
        .map_err(|error| NativeError::Generator(format!("{:?}", error.inner)))?;
    if !compiled.buffer.relocs().is_empty() {
        return Err(NativeError::Generator("an address is not known".into()));
    }
    Ok(compiled.code_buffer().to_vec())
}
