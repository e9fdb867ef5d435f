// SPDX-License-Identifier: Apache-2.0
//! Implements the `ctl` commands for state that BMv2's command line can also show and set: mirrors, registers, queues,
//! and port statistics.

use sluice_admin::proto::*;

use super::connect::Client;
use super::render;

/// Selects cells of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellSelection {
    All,
    One(u32),
}

/// Parses the index of a cell, or `all`.
pub(super) fn cell(argument: &str) -> Result<CellSelection, String> {
    if argument == "all" {
        return Ok(CellSelection::All);
    }
    let index = argument.parse().map(CellSelection::One);
    index.map_err(|_| format!("{argument:?} is neither an index nor `all`"))
}

pub(super) async fn reset_ports(
    mut client: Client,
    port: Option<u16>,
    json: bool,
) -> anyhow::Result<()> {
    let number = port.map(u32::from);
    let found = client.reset_ports(ResetPortsRequest { number }).await?;
    let found = found.into_inner();
    render::show(&found, json, || render::ports(&found.ports))
}

pub(super) async fn queues(mut client: Client, json: bool) -> anyhow::Result<()> {
    let found = client.list_queues(ListQueuesRequest {}).await?.into_inner();
    render::show(&found, json, || queue_rows(&found.queues))
}

/// Sets the depth or rate of the queues that have this port and this priority. `None` selects all ports or all
/// priorities.
pub(super) async fn set_queues(
    mut client: Client,
    (port, priority): (Option<u16>, Option<u32>),
    depth: Option<u32>,
    rate: Option<u64>,
    json: bool,
) -> anyhow::Result<()> {
    let request = SetQueuesRequest {
        port: port.map(u32::from),
        priority,
        depth,
        rate,
    };
    let found = client.set_queues(request).await?.into_inner();
    render::show(&found, json, || queue_rows(&found.queues))
}

fn queue_rows(queues: &[Queue]) -> String {
    let row = |queue: &Queue| {
        let rate = match queue.rate {
            0 => "-".to_owned(),
            rate => rate.to_string(),
        };
        let numbers = [queue.port, queue.priority, queue.packets, queue.depth];
        let numbers = numbers.iter().map(u32::to_string);
        numbers.chain([rate, queue.dropped.to_string()]).collect()
    };
    let rows: Vec<_> = queues.iter().map(row).collect();
    let head = ["PORT", "PRIORITY", "PACKETS", "DEPTH", "RATE", "DROPPED"];
    render::table(&head, &rows)
}

pub(super) async fn mirrors(mut client: Client, json: bool) -> anyhow::Result<()> {
    let found = client.list_replication(ListReplicationRequest {}).await?;
    let found = found.into_inner();
    render::show(&found, json, || replication(&found))
}

pub(super) async fn register(
    mut client: Client,
    name: &str,
    index: Option<u32>,
    json: bool,
) -> anyhow::Result<()> {
    let register = name.to_owned();
    let request = ReadRegisterRequest { register, index };
    let found = client.read_register(request).await?.into_inner();
    render::show(&found, json, || cells(&found))
}

pub(super) async fn write_register(
    mut client: Client,
    name: &str,
    which: CellSelection,
    value: &str,
    json: bool,
) -> anyhow::Result<()> {
    let request = WriteRegisterRequest {
        register: name.to_owned(),
        index: match which {
            CellSelection::All => None,
            CellSelection::One(index) => Some(index),
        },
        value: value.to_owned(),
    };
    let found = client.write_register(request).await?.into_inner();
    render::show(&found, json, || cells(&found))
}

fn cells(found: &ReadRegisterResponse) -> String {
    let name = |index: u32| format!("{}[{index}]", found.register);
    let row = |cell: &Cell| vec![name(cell.index), cell.value.clone()];
    let rows: Vec<_> = found.cells.iter().map(row).collect();
    render::table(&["CELL", "VALUE"], &rows)
}

fn replication(found: &ListReplicationResponse) -> String {
    let copies = |replicas: &[Replica]| {
        let one = |replica: &Replica| {
            let backups: Vec<_> = replica.backups.iter().map(u32::to_string).collect();
            let or = if backups.is_empty() { "" } else { " or " };
            let (port, instance) = (replica.port, replica.instance);
            format!("{port}/{instance}{or}{}", backups.join(" or "))
        };
        replicas.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let sessions = found.clone_sessions.iter().map(|session| {
        let bytes = match session.packet_length {
            0 => "all".to_owned(),
            bytes => bytes.to_string(),
        };
        let copies = copies(&session.replicas);
        vec![
            "clone session".into(),
            session.id.to_string(),
            bytes,
            copies,
        ]
    });
    let groups = found.multicast_groups.iter().map(|group| {
        let copies = copies(&group.replicas);
        vec![
            "multicast group".into(),
            group.id.to_string(),
            "all".into(),
            copies,
        ]
    });
    let rows: Vec<_> = sessions.chain(groups).collect();
    render::table(&["KIND", "ID", "BYTES", "PORT/INSTANCE"], &rows)
}
