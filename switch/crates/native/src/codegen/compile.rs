// SPDX-License-Identifier: Apache-2.0
//! Compiles a program to pages of machine code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder, Signature, UserFuncName};
use cranelift_codegen::isa::OwnedTargetIsa;
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use sluice_engine::Config;
use sluice_program::{FieldSlot, Op, Program};

use crate::analysis::field_usage::FieldUsage;
use crate::codegen::lower::{Lower, Statics};
use crate::codegen::variants::FactUses;
use crate::runtime::frame::{Frame, MIDDLE};
use crate::runtime::pages::Pages;

/// A part of the program that is compiled to one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Parser and ingress. For packets without requests to the traffic manager, also egress and deparser
    /// ([`crate::codegen::forward`]).
    Forward = 0,
    Egress = 1,
    Deparser = 2,
    /// Only the parser, for clones that the ingress pipeline requested.
    Parser = 3,
}

/// Order: parts that read metadata from memory come first, because they mark the fields that [`Part::Forward`] must
/// write to memory.
const PARTS: [Part; 4] = [Part::Parser, Part::Egress, Part::Deparser, Part::Forward];

/// The reason why a program cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// There is no code generator for this machine.
    #[error("the native engine does not support this processor: {0}")]
    Machine(String),
    /// The code generator rejected its input: a bug in this crate.
    #[error("cannot generate machine code: {0}")]
    Generator(String),
    /// The kernel gave no executable memory for the code.
    #[error("cannot allocate memory for machine code: {0}")]
    Memory(#[from] std::io::Error),
}

/// Report on the compilation of a program.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Descriptions of constructs that could not be compiled to inline code. Empty for all known programs.
    pub not_compiled: Vec<String>,
    /// Bytes of machine code.
    pub code_bytes: usize,
    /// Duration of the compilation.
    pub time: Duration,
}

/// A compiled program. Shared by the engines that run it.
pub struct Code {
    program: Arc<Program>,
    config: Config,
    pages: Pages,
    entries: [Option<PartFunction>; 4],
    most_header_bytes: usize,
    /// Metadata fields that some code reads from the header vector.
    observed: Vec<FieldSlot>,
    /// Constants that the code refers to by address.
    _statics: Statics,
}

/// Machine code of one part of the program. Its argument is the address [`MIDDLE`] bytes after the start of a frame.
type PartFunction = unsafe extern "C" fn(*mut u8) -> u64;

impl Code {
    /// Compiles a program. The drop port and the step limits of `config` become part of the code.
    ///
    /// # Errors
    /// Fails if code cannot be generated for this machine, or if there is no memory for the code.
    pub fn compile(
        program: &Arc<Program>,
        config: &Config,
    ) -> Result<(Arc<Self>, Report), NativeError> {
        let begin = Instant::now();
        let isa = isa()?;
        let facts = FieldUsage::new(program);
        let mut statics = Statics::default();
        let mut not_compiled = Vec::new();
        let mut functions = Vec::new();
        for part in PARTS {
            let needed = match part {
                Part::Parser => may_clone(program),
                Part::Egress => program.egress.first.is_some(),
                Part::Forward | Part::Deparser => true,
            };
            if needed {
                let build = |statics: &mut Statics, not_compiled: &mut Vec<String>| {
                    build(part, program, config, &facts, statics, not_compiled, &isa)
                };
                if part == Part::Forward && facts.keep.get() {
                    // This first build finds out which fields are read from memory, or whether all metadata must stay
                    // in memory. Its code is discarded.
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
                let panicked = || NativeError::Generator("the code generator panicked".into());
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
            // SAFETY: the function at this offset was generated with this signature and for this layout of frames.
            entry.map(|entry| unsafe {
                std::mem::transmute::<*const u8, PartFunction>(pages.address(entry))
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

    /// Returns the program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns the configuration that the program was compiled with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the total number of bytes of all headers that the deparser can emit.
    pub(crate) fn most_header_bytes(&self) -> usize {
        self.most_header_bytes
    }

    /// Returns whether some code reads a metadata field from the header vector.
    pub(crate) fn looks_at(&self, slot: FieldSlot) -> bool {
        self.observed.iter().any(|field| field.bit() == slot.bit())
    }

    /// Returns whether a part has a function. A part without work has no function.
    pub(crate) fn has(&self, part: Part) -> bool {
        self.entries[part as usize].is_some()
    }

    /// Runs a part on a packet of this program. Returns the result of the part's function, or 0 if the part has no
    /// function.
    #[inline]
    pub(crate) fn run(&self, part: Part, frame: &mut Frame<'_>) -> u64 {
        let Some(entry) = self.entries[part as usize] else {
            return 0;
        };
        let frame: *mut Frame<'_> = frame;
        // SAFETY: a frame is longer than `MIDDLE` bytes. The pages live as long as this value. By the invariant of
        // `Frame`, its pointers are valid, and no other code uses their targets during the call. The machine code stays
        // inside the header vector, whose layout the loader checked, and inside the packet, whose length it checks
        // before each read.
        unsafe { entry(frame.cast::<u8>().add(MIDDLE)) }
    }
}

/// Returns the code generator for this machine.
fn isa() -> Result<OwnedTargetIsa, NativeError> {
    if !cfg!(target_arch = "x86_64") {
        // On other machines the instruction cache would have to be flushed after new code is written.
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

/// Builds the intermediate code of one part.
fn build(
    part: Part,
    program: &Program,
    config: &Config,
    facts: &FieldUsage,
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
            lower.parser(&FactUses::default(), &mut |lower| lower.finish(0));
        }
        Part::Egress => {
            let mut egress = lower.graph(&program.egress, FactUses::default());
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

/// Generates the machine code of one part. The code refers to everything by absolute address, so it needs no
/// relocation.
fn generate(function: Function, isa: &OwnedTargetIsa) -> Result<Vec<u8>, NativeError> {
    let mut context = Context::for_function(function);
    let compiled = context
        .compile(&**isa, &mut ControlPlane::default())
        .map_err(|error| NativeError::Generator(format!("{:?}", error.inner)))?;
    if !compiled.buffer.relocs().is_empty() {
        return Err(NativeError::Generator("the code needs relocations".into()));
    }
    Ok(compiled.code_buffer().to_vec())
}

/// Returns whether a program may request clones. If so, the parser is also compiled as a function of its own, because a
/// clone is parsed without entering ingress.
fn may_clone(program: &Program) -> bool {
    let ops = program.actions.iter().flat_map(|action| &action.ops);
    ops.chain(&program.deparser.ops)
        .any(|op| matches!(op, Op::Clone { .. }))
}
