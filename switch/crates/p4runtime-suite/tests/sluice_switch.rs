// SPDX-License-Identifier: Apache-2.0
//! Runs every case against sluice-switch. Each case has its own server in this process, on a device without ports.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use sluice_device::{Config, Device};
use sluice_p4runtime::{Hub, Server};
use sluice_p4runtime_suite::{Case, Failure, Target, cases, program};
use tokio::runtime::Runtime;

const DEVICE: u64 = 1;

/// Cases about requests that sluice-switch refuses by default (see `--writes-from-any-connection`).
const ANY_CONNECTION: [&str; 1] =
    ["a_client_with_the_primarys_id_writes_without_a_stream_of_its_own"];

fn run(case: &Case) -> Result<(), Failed> {
    let runtime = Runtime::new()?;
    let outcome = runtime.block_on(async {
        let (hub, digests) = Hub::new(DEVICE);
        let config = Config {
            cpu_port: Some(program::CPU_PORT),
            ..Config::default()
        };
        let device = Arc::new(Device::start(config, hub.clone())?);
        let mut server = Server::bind("127.0.0.1:0", DEVICE, device.clone(), hub, digests).await?;
        if ANY_CONNECTION.contains(&case.name) {
            server = server.with_writes_from_any_connection();
        }
        let target = Target::new(&server.address()?, DEVICE, true);
        let serving = tokio::spawn(server.serve(std::future::pending()));
        let verdict = case.run(&target).await;
        serving.abort();
        device.stop();
        Ok::<_, std::io::Error>(verdict.outcome)
    })?;
    match outcome {
        Ok(()) => Ok(()),
        // No case may be skipped, because sluice-switch has all optional features.
        Err(Failure::Failed(reason) | Failure::Skipped(reason)) => Err(reason.into()),
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases mostly wait. With more than a few threads, some cases would exceed their time limits.
    arguments.test_threads.get_or_insert(4);
    let trials = cases::all()
        .into_iter()
        .map(|case| Trial::test(case.full_name(), move || run(&case)))
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
