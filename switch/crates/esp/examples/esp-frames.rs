// SPDX-License-Identifier: Apache-2.0
//! Runs an engine for tests in other languages, on standard input and output: `esp-frames STATE_DIRECTORY`.
//!
//! Each line is one JSON document. The request `{"add": SA}` is answered by `{}` or `{"error": TEXT}`; `{"frame": HEX}`
//! is answered by `{"frame": HEX}` or `{"drop": NAME}`.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_esp::engine::Sa;
use sluice_esp::{Engine, MAX_OUTPUT, Reservations, SaSpec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(
        std::env::args_os()
            .nth(1)
            .ok_or("usage: esp-frames STATE_DIRECTORY")?,
    );
    let reservations = Reservations::open(&directory)?;
    let mut engine = Engine::default();
    let mut out = vec![0; MAX_OUTPUT];
    for line in io::stdin().lock().lines() {
        let mut request: Value = serde_json::from_str(&line?)?;
        let answer = if let Some(spec) = request.get_mut("add") {
            match add(&mut engine, &reservations, spec.take()) {
                Ok(()) => json!({}),
                Err(error) => json!({ "error": error }),
            }
        } else {
            let frame = unhex(
                request["frame"]
                    .as_str()
                    .ok_or("the request has neither `add` nor `frame`")?,
            )?;
            match engine.process(&frame, 0, &mut out) {
                Ok(length) => json!({ "frame": hex(&out[..length]) }),
                Err(why) => json!({ "drop": why.name() }),
            }
        };
        writeln!(io::stdout(), "{answer}")?;
    }
    Ok(())
}

fn add(engine: &mut Engine, reservations: &Reservations, spec: Value) -> Result<(), String> {
    let spec: SaSpec = serde_json::from_value(spec).map_err(|error| error.to_string())?;
    spec.check(false)?;
    let sa = Sa::prepare(spec, reservations, 0)?;
    engine.add(sa).map_err(|(_, problem)| problem)
}

fn unhex(text: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let pairs = (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16));
    Ok(pairs.collect::<Result<_, _>>()?)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
