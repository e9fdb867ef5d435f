// SPDX-License-Identifier: Apache-2.0
//! Loads BMv2 JSON files. Prints a summary of each file, or the reason why it cannot be loaded.

use sluice_program::Program;

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        match Program::from_json(&std::fs::read(&path)?) {
            Ok(program) => println!(
                "{path}: {} tables, {} actions, {} parser states, {} bytes of PHV",
                program.tables.len(),
                program.actions.len(),
                program.states.len(),
                program.phv_bytes
            ),
            Err(error) => println!("{path}: {error}"),
        }
    }
    Ok(())
}
