// SPDX-License-Identifier: Apache-2.0
//! Sends the switch's keepalives to the service manager.

use std::sync::Arc;

use sluice_device::Device;
use sluice_service_manager::ServiceManager;

/// Sends keepalives while every worker responds. Returns when a worker has died.
///
/// This task runs on the server's runtime, so keepalives also stop if the server hangs.
pub(crate) async fn keep_informed(manager: Arc<ServiceManager>, device: Arc<Device>) {
    let Some(interval) = manager.interval() else {
        return;
    };
    loop {
        let asked = Arc::clone(&device);
        let answer = tokio::task::spawn_blocking(move || asked.workers_answer()).await;
        if !matches!(answer, Ok(true)) {
            tracing::error!(
                "a worker has died, so keepalives end and the service manager restarts the switch"
            );
            return;
        }
        manager.tell("WATCHDOG=1");
        tokio::time::sleep(interval).await;
    }
}
