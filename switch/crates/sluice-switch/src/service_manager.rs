// SPDX-License-Identifier: Apache-2.0
//! The switch's signs of life for the service manager.

use std::sync::Arc;

use sluice_device::Device;
use sluice_service_manager::ServiceManager;

/// Gives signs of life for as long as every worker answers; ends when one has died.
///
/// Runs on the server's runtime: a server that hangs gives none either.
pub(crate) async fn keep_informed(manager: Arc<ServiceManager>, device: Arc<Device>) {
    let Some(interval) = manager.interval() else {
        return;
    };
    loop {
        let asked = Arc::clone(&device);
        let answer = tokio::task::spawn_blocking(move || asked.workers_answer()).await;
        if !matches!(answer, Ok(true)) {
            tracing::error!("a worker has died; the service manager is left to restart the switch");
            return;
        }
        manager.tell("WATCHDOG=1");
        tokio::time::sleep(interval).await;
    }
}
