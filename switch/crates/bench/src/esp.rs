// SPDX-License-Identifier: Apache-2.0
//! Measures the rate at which the ESP engine processes packets (`esp`), from the request frame to the answer frame,
//! each with its shim header. The engine is compared with AWS-LC's AEAD alone, over the same number of bytes.
//!
//! All packets use AES-128-GCM with ESN, a tunnel over IPv4, and an anti-replay window of 1,024 packets. Some
//! measurements use one SA. The others use 10,000 SAs, and each packet takes a random one of them.
//!
//! * *encrypt*, *decrypt*: the frames are already in a batch. Encryption overwrites the first bytes of a frame, so
//!   these are written again before each pass. The payload is the result of the previous pass.
//! * *copied*: each pass also copies the whole frames into the batch.
//! * `aead-SIZE` seals or opens SIZE bytes in place, with the same number of keys, through aws-lc-rs.
//! * `aead-one-key` does the same with a single key.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use sluice_esp::engine::Sa;
use sluice_esp::shim::{ETHERTYPE_IPV4, PACKET, Shim, Task};
use sluice_esp::{Batch, Engine, Key, Outcome, Reservations, SaSpec};

use crate::input::random::Random;
use crate::measure::{Contender, interleave};
use crate::report::{Case, OURS, Report};
use crate::setting::Setting;
use crate::system::thread_time;

const BATCH: usize = sluice_esp::batch::BATCH;
/// Number of batches that are prepared for each measurement of decryption.
const BATCHES: usize = 4;
const MANY: usize = 10_000;
const SIZES: [usize; 4] = [64, 256, 576, 1_350];
/// Packet sizes of the IMIX in bytes: 7 of 64, 4 of 576, 1 of 1,350.
const IMIX: [usize; 12] = [64, 576, 64, 64, 576, 64, 1_350, 64, 576, 64, 576, 64];
const SEED: u64 = 0x0065_7370;
/// Number of random SAs in the sequence, which then repeats.
const PICKS: usize = 1 << 14;
const HEADER: usize = PACKET + 20;
const TAG: usize = 16;
const BUNDLE: u16 = 1;
const FIRST_SPI: u32 = 256;
/// Distance in bytes between the buffers that the AEAD alone encrypts. Frames in a batch have the same distance.
const STRIDE: usize = 66_880;

/// A sequence of packets. Their sizes repeat in a cycle, and their SAs are random.
struct Traffic {
    name: String,
    /// Name of the peer in the report.
    peer: String,
    sizes: Vec<usize>,
    picks: Vec<u32>,
}

impl Traffic {
    fn new(size: Option<usize>, sas: usize) -> Self {
        let sizes = size.map_or(IMIX.to_vec(), |size| vec![size]);
        let of = size.map_or("IMIX".into(), |size| format!("{size} bytes"));
        let count = match sas {
            1 => "1 SA".to_owned(),
            many => format!("{many} SAs"),
        };
        let mut random = Random::new(SEED);
        Self {
            name: format!("{of}, {count}"),
            peer: size.map_or("aead-imix".into(), |size| format!("aead-{size}")),
            sizes,
            picks: (0..PICKS)
                .map(|_| random.below(sas as u64) as u32)
                .collect(),
        }
    }

    /// Returns the size and the SA of the packet with this number.
    fn packet(&self, number: usize) -> (usize, u32) {
        let size = self.sizes[number % self.sizes.len()];
        (size, self.picks[number % PICKS])
    }

    fn mean_size(&self) -> f64 {
        self.sizes.iter().sum::<usize>() as f64 / self.sizes.len() as f64
    }
}

/// Two engines with the same SAs: one encrypts and one decrypts.
struct Engines {
    sender: Engine,
    receiver: Engine,
    _reservations: Reservations,
    _state: tempfile::TempDir,
}

fn key(number: u32) -> [u8; 20] {
    let mut key = [0x5a; 20];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

impl Engines {
    fn new(sas: usize) -> Result<Self> {
        // Uses a tmpfs if there is one. On a disk, each SA would have to wait for the write of its sequence numbers.
        let memory = std::path::Path::new("/dev/shm");
        let state = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        }?;
        let reservations = Reservations::open(state.path())?;
        let (mut sender, mut receiver) = (Engine::default(), Engine::default());
        for number in 0..sas as u32 {
            for (engine, direction) in [(&mut sender, "out"), (&mut receiver, "in")] {
                let spec = spec(number, direction)?;
                spec.check(false).map_err(|why| anyhow!(why))?;
                let sa = Sa::prepare(spec, &reservations, 0).map_err(|why| anyhow!(why))?;
                engine.add(sa).map_err(|(_, why)| anyhow!(why))?;
            }
        }
        Ok(Self {
            sender,
            receiver,
            _reservations: reservations,
            _state: state,
        })
    }
}

fn spec(number: u32, direction: &str) -> Result<SaSpec> {
    let mut value = serde_json::json!({
        "direction": direction, "sa": number, "spi": FIRST_SPI + number, "bundle": BUNDLE, "mode": "tunnel",
        "algorithm": "aes-128-gcm", "esn": true,
    });
    if direction == "out" {
        value["local"] = "192.0.2.1".into();
        value["remote"] = "192.0.2.2".into();
    } else {
        value["replay_window"] = 1024.into();
    }
    let mut spec: SaSpec = serde_json::from_value(value)?;
    let hex: String = key(number)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    spec.key = Some(Key::from_hex(hex.as_bytes()).map_err(|why| anyhow!(why))?);
    Ok(spec)
}

/// Builds the first bytes of a frame to encrypt: shim and IP header.
fn header(size: usize, sa: u32) -> [u8; HEADER] {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet[2..4].copy_from_slice(&(size as u16).to_be_bytes());
    packet.extend([10, 1, 0, 1, 10, 2, 0, 1]);
    let mut header = [0; HEADER];
    header.copy_from_slice(&shim(Task::Encrypt, sa).frame(&packet));
    header
}

fn shim(task: Task, sa: u32) -> Shim {
    Shim {
        task,
        engine: 1,
        bundle: BUNDLE,
        sa,
        ingress_l3_if: 1,
        vrf: 0,
        ether_type: ETHERTYPE_IPV4,
    }
}

/// Generates the frames to encrypt, one after the other.
struct ToEncrypt<'a> {
    traffic: &'a Traffic,
    headers: Vec<[u8; HEADER]>,
    next: usize,
    whole: Vec<u8>,
}

impl<'a> ToEncrypt<'a> {
    fn new(traffic: &'a Traffic) -> Self {
        let headers = traffic.sizes.iter().map(|size| header(*size, 0)).collect();
        Self {
            traffic,
            headers,
            next: 0,
            whole: vec![0x33; 2048],
        }
    }

    /// Fills a batch. If `copied` is set, writes whole frames, else only the first bytes of each frame.
    #[inline]
    fn fill(&mut self, batch: &mut Batch, copied: bool) {
        batch.clear();
        for _ in 0..BATCH {
            let (size, sa) = self.traffic.packet(self.next);
            let header = &mut self.headers[self.next % self.traffic.sizes.len()];
            header[18..22].copy_from_slice(&sa.to_be_bytes());
            self.next += 1;
            if copied {
                self.whole[..HEADER].copy_from_slice(header);
                batch.push(&self.whole[..PACKET + size], &[]);
            } else if let Some(room) = batch.room() {
                room[..HEADER].copy_from_slice(header);
                batch.commit(PACKET + size);
            }
        }
    }
}

/// Returns whether the engine has answered all frames of a batch.
fn answered(batch: &Batch) -> bool {
    (0..batch.len()).all(|place| batch.outcome(place) == Outcome::Answered)
}

/// Checks that one engine encrypts packets, and that the other decrypts them to the original packets.
fn agree(engines: &mut Engines, traffic: &Traffic) -> Result<()> {
    let (mut batch, mut sealed) = (Batch::default(), Batch::default());
    let mut frames = ToEncrypt::new(traffic);
    frames.fill(&mut batch, true);
    let before: Vec<usize> = (0..BATCH).map(|number| traffic.packet(number).0).collect();
    engines.sender.process_batch(&mut batch, 0);
    ensure!(answered(&batch), "not every frame was encrypted");
    to_decrypt(&batch, &mut sealed);
    engines.receiver.process_batch(&mut sealed, 0);
    ensure!(answered(&sealed), "not every frame was decrypted");
    for (answer, size) in sealed.answers().zip(before) {
        let packet = &answer[PACKET..];
        ensure!(
            packet.len() == size && packet[20..].iter().all(|byte| *byte == 0x33),
            "decryption did not return the original packet"
        );
    }
    Ok(())
}

/// Fills a batch for decryption. The answers in `from` become the frames of `to`.
fn to_decrypt(from: &Batch, to: &mut Batch) {
    to.clear();
    for answer in from.answers() {
        let (shim, packet) = answer.split_at(PACKET);
        let mut asked = [0; PACKET];
        asked.copy_from_slice(shim);
        asked[14] = 3;
        to.push(&asked, packet);
    }
}

fn decrypt_pass(
    engines: &mut Engines,
    frames: &mut ToEncrypt<'_>,
    batches: &mut [(Batch, Batch)],
) -> Duration {
    for (clear, sealed) in batches.iter_mut() {
        frames.fill(clear, true);
        engines.sender.process_batch(clear, 0);
        to_decrypt(clear, sealed);
    }
    let start = thread_time();
    for (_, sealed) in batches.iter_mut() {
        engines.receiver.process_batch(sealed, 0);
    }
    let took = thread_time() - start;
    assert!(batches.iter().all(|(_, sealed)| answered(sealed)));
    took
}

/// AWS-LC's AEAD, used without an ESP engine.
struct Aead {
    keys: Vec<LessSafeKey>,
    /// A second copy of the keys, for opening. Sealing has just used the first copy, so that copy is in the caches. A
    /// real receiver is another machine, whose caches do not hold the sender's keys.
    peer_keys: Vec<LessSafeKey>,
    memory: Vec<u8>,
    tags: Vec<[u8; TAG]>,
    number: u64,
}

impl Aead {
    fn new(keys: usize) -> Result<Self> {
        let new = |number| {
            let unbound = UnboundKey::new(&AES_128_GCM, &key(number)[..16]);
            unbound
                .map(LessSafeKey::new)
                .context("the library refuses a key")
        };
        let all = || (0..keys as u32).map(new).collect::<Result<_>>();
        Ok(Self {
            keys: all()?,
            peer_keys: all()?,
            memory: vec![0x33; STRIDE * BATCH * BATCHES + 64],
            tags: vec![[0; TAG]; BATCH * BATCHES],
            number: 0,
        })
    }

    fn nonce(number: u64) -> Nonce {
        let mut nonce = [7; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }

    fn aad(number: u64) -> Aad<[u8; 12]> {
        let mut aad = [1; 12];
        aad[4..].copy_from_slice(&number.to_be_bytes());
        Aad::from(aad)
    }

    fn text(&self, at: usize, size: usize) -> std::ops::Range<usize> {
        let first = self.memory.as_ptr().align_offset(64) + at * STRIDE;
        first..first + size
    }

    /// Seals the next `count` texts.
    fn seal(&mut self, traffic: &Traffic, count: usize) -> u64 {
        for at in 0..count {
            let (size, sa) = traffic.packet(self.number as usize);
            let text = self.text(at, size);
            let key = &self.keys[sa as usize % self.keys.len()];
            let (nonce, aad) = (Self::nonce(self.number), Self::aad(self.number));
            let (text, tag) = (&mut self.memory[text], &mut self.tags[at]);
            let sealed = key.seal_in_place_scatter(nonce, aad, text, &[], tag);
            assert!(sealed.is_ok());
            self.number += 1;
        }
        self.number
    }

    /// Opens the last `count` sealed texts.
    fn open(&mut self, traffic: &Traffic, count: usize) {
        let first = self.number - count as u64;
        for at in 0..count {
            let number = first + at as u64;
            let (size, sa) = traffic.packet(number as usize);
            let text = self.text(at, size);
            let key = &self.peer_keys[sa as usize % self.keys.len()];
            let (nonce, aad) = (Self::nonce(number), Self::aad(number));
            let (text, tag) = (&mut self.memory[text], &self.tags[at]);
            let opened = key.open_in_place_separate_tag(nonce, aad, tag, text);
            assert!(opened.is_ok());
        }
    }

    fn open_pass(&mut self, traffic: &Traffic) -> Duration {
        self.seal(traffic, BATCH * BATCHES);
        let start = thread_time();
        self.open(traffic, BATCH * BATCHES);
        thread_time() - start
    }
}

/// Measures encryption and decryption of one traffic mix.
fn measure(
    setting: &Setting,
    traffic: &Traffic,
    engines: &mut Engines,
    aead: &mut Aead,
    one_key: &mut Aead,
    report: &mut Report,
) {
    let mut add = |kind: &'static str, contenders: &mut [Contender<'_>]| {
        let rates = interleave(contenders, setting.fine_effort());
        let name = format!("{}, {kind}", traffic.name);
        setting.tell(&name, &rates);
        let mut case = Case::new(name, kind, &rates);
        if kind == "copied" {
            // The AEAD alone copies nothing. So the report gives no ratio of engine and AEAD for this case.
            case.peers.clear();
        }
        let bits = rates[0].median() * traffic.mean_size() * 8.0;
        case.detail("gbit_per_cpu_second", format!("{:.2}", bits / 1e9));
        report.cases.push(case);
    };
    for (kind, copied) in [("encrypt", false), ("copied", true)] {
        let (mut batch, mut frames) = (Batch::default(), ToEncrypt::new(traffic));
        add(
            kind,
            &mut [
                Contender::new(OURS, BATCH, || {
                    frames.fill(&mut batch, copied);
                    engines.sender.process_batch(&mut batch, 0);
                    batch.len() as u64
                }),
                Contender::new(&traffic.peer, BATCH, || aead.seal(traffic, BATCH)),
                Contender::new("aead-one-key", BATCH, || one_key.seal(traffic, BATCH)),
            ],
        );
        assert!(answered(&batch));
    }
    let mut batches: Vec<_> = (0..BATCHES)
        .map(|_| (Batch::default(), Batch::default()))
        .collect();
    let mut frames = ToEncrypt::new(traffic);
    let operations = BATCH * BATCHES;
    add(
        "decrypt",
        &mut [
            Contender::timed(OURS, operations, || {
                decrypt_pass(engines, &mut frames, &mut batches)
            }),
            Contender::timed(&traffic.peer, operations, || aead.open_pass(traffic)),
            Contender::timed("aead-one-key", operations, || one_key.open_pass(traffic)),
        ],
    );
}

/// Runs the benchmark.
pub(crate) fn run(setting: &Setting) -> Result<Report> {
    let mut report = setting.report("packets per CPU-second");
    report.note("algorithm", "aes-128-gcm, ESN, tunnel over IPv4");
    report.note("frames of a batch", BATCH);
    report.note("IMIX", "7 of 64 bytes, 4 of 576, 1 of 1,350");
    let many = if setting.quick { 100 } else { MANY };
    let mut one_key = Aead::new(1)?;
    for sas in [1, many] {
        setting.progress(&format!("{sas} SAs"));
        let (mut engines, mut aead) = (Engines::new(sas)?, Aead::new(sas)?);
        for size in SIZES.into_iter().map(Some).chain([None]) {
            let traffic = Traffic::new(size, sas);
            agree(&mut engines, &traffic)?;
            measure(
                setting,
                &traffic,
                &mut engines,
                &mut aead,
                &mut one_key,
                &mut report,
            );
        }
    }
    black_box(&one_key.tags);
    Ok(report)
}
