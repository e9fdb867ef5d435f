// SPDX-License-Identifier: Apache-2.0
//! Tests ports on pcap files.

use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use sluice_ports::pcap::{Reader, Writer};

use crate::running::*;
use crate::wire::frame;

#[test]
fn on_files_it_reads_in_the_order_of_stamps_and_writes() {
    let directory = tempfile::tempdir().unwrap();
    let kinds = [(0x1111u16, "p1"), (0x2222, "p2"), (0x3333, "")];
    let frame = |kind: u16| {
        let mut frame = frame(1);
        frame[12..14].copy_from_slice(&kind.to_be_bytes());
        frame
    };
    let input = File::create(directory.path().join("p0_in.pcap")).unwrap();
    let mut writer = Writer::new(input).unwrap();
    for (kind, _) in kinds {
        writer.write(&frame(kind)).unwrap();
    }
    let json = json();
    let arguments = [
        "-i",
        "0@p0",
        "-i",
        "1@p1",
        "-i",
        "2@p2",
        "--use-files",
        "0",
        json.to_str().unwrap(),
        "--grpc-server-addr",
        "127.0.0.1:0",
    ];
    let switch = Switch::start(directory.path(), &arguments);
    for (kind, name) in &kinds[..2] {
        let path = directory.path().join(format!("{name}_out.pcap"));
        let deadline = Instant::now() + DEADLINE;
        let record = loop {
            let mut reader = Reader::new(File::open(&path).unwrap()).unwrap();
            if let Ok(Some(record)) = reader.next_record() {
                break record;
            }
            assert!(
                Instant::now() < deadline,
                "there is nothing in {}",
                path.display()
            );
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(record.data, frame(*kind));
    }
    assert!(switch.terminate().success());
}
