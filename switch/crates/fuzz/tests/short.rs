// SPDX-License-Identifier: Apache-2.0
//! Runs every target with a fixed seed, long enough to check that the target still works. `make fuzz` is the long form
//! of this test.

use sluice_fuzz::{Driver, Tally, Until, targets};

fn run(name: &str, count: u64) -> Tally {
    let (name, make) = targets()
        .into_iter()
        .find(|(known, _)| *known == name)
        .expect("the target is listed");
    let artifacts = std::env::temp_dir().join("sluice-fuzz");
    let mut driver = Driver::new(name, make(), 0x5eed, artifacts);
    let tally = driver.run(Until::Count(count));
    tally.unwrap_or_else(|crash| panic!("{crash:#}")).clone()
}

#[test]
fn programs_are_run_or_refused() {
    let tally = run("program", 300);
    let loaded = tally.get("programs") - tally.get("refused");
    assert!(tally.get("refused") > 50 && loaded > 50, "{tally:?}");
    assert!(tally.get("transmitted") > 0, "{tally:?}");
}

#[test]
fn packets_leave_or_are_dropped() {
    let tally = run("packet", 30_000);
    assert!(tally.get("transmitted") > 1_000, "{tally:?}");
    assert!(tally.get("digests") > 0, "{tally:?}");
}

#[test]
fn engines_agree() {
    let tally = run("engines", 30_000);
    assert!(tally.get("outputs") > 1_000, "{tally:?}");
}

#[test]
fn esp_is_decrypted_once_or_dropped() {
    let tally = run("esp", 20_000);
    assert!(tally.get("decrypted") > 1_500, "{tally:?}");
    assert!(tally.get("not authentic") > 1_000, "{tally:?}");
    assert!(tally.get("kept") > 1_000, "{tally:?}");
}

#[test]
fn updates_are_answered_as_the_model_foresees() {
    let tally = run("update", 10_000);
    assert!(tally.get("applied") > 2_000, "{tally:?}");
    assert!(tally.get("damaged") > 500, "{tally:?}");
}

#[test]
fn streams_are_answered_and_end() {
    let tally = run("stream", 2_000);
    assert!(tally.get("responses") > 200, "{tally:?}");
}
