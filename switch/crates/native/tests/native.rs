// SPDX-License-Identifier: Apache-2.0
//! Checks that all programs of the router compile to native code completely, so that the interpreter runs no part of
//! them.

use std::path::Path;
use std::sync::Arc;

use sluice_engine::Config;
use sluice_native::Code;
use sluice_program::Program;

#[test]
fn nothing_of_the_router_is_left_to_the_interpreter() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../p4src/build/v1model");
    let mut compiled = 0;
    for file in std::fs::read_dir(&folder).expect("the folder can be read") {
        let path = file.expect("the folder can be read").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let json = std::fs::read(&path).expect("the file can be read");
        let Ok(program) = Program::from_json(&json) else {
            continue; // p4c's description of the control plane is JSON too
        };
        let name = path.display();
        let (_, report) = Code::compile(&Arc::new(program), &Config::default())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(report.not_compiled, Vec::<String>::new(), "{name}");
        assert!(report.code_bytes > 0, "{name}: there is no code");
        compiled += 1;
    }
    assert!(compiled > 0, "no program in {}", folder.display());
}
