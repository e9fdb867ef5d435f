// SPDX-License-Identifier: Apache-2.0
//! Reserves sequence numbers of outbound SAs on disk before they are used.
//!
//! The sequence number is the nonce. So no number may be used twice with the same key, even if the process is killed
//! and the same SA is added again. For each key, a file holds a *limit*: the highest number that may have been used.
//! The SA issues only numbers up to this limit. When half of the reserved numbers are left, a separate thread writes
//! the next limit. After a crash, the SA continues above the limit on disk. The unused numbers below it are skipped.
//!
//! The file has a record of 32 bytes for each key that has ever encrypted on this machine. A record has the limit, a
//! checksum, and a fingerprint of the key, which does not reveal the key. Records are never deleted, because a key may
//! be added again. Promises:
//!
//! * A number is issued only when the limit on disk is at least that number.
//! * A record that cannot be read is an error. The limit of such a record is never guessed.
//! * Only one process has the file open for use, and each key has only one SA.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use aws_lc_rs::{digest, hmac};
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::{FlockOperation, flock};

use crate::counters::Drop as PacketDrop;
use crate::key::Key;

/// The file's name in the state directory.
pub const FILE: &str = "sequence-numbers";
/// Numbers reserved by one write.
pub const CHUNK: u64 = 1 << 20;

const RECORD: usize = 32;
/// Capacity of the queue of requests to the thread that writes limits. If the queue is full, the next packet repeats
/// the request.
const WAITING: usize = 1024;

/// Identifies a key without revealing it.
pub type Fingerprint = [u8; 16];

/// Returns the fingerprint of an SA's keys.
pub fn fingerprint(key: &Key, integrity: &Key) -> Fingerprint {
    let by = hmac::Key::new(hmac::HMAC_SHA256, b"sluice-esp sequence numbers 1");
    let mut context = hmac::Context::with_key(&by);
    context.update(&[key.bytes().len() as u8]);
    context.update(key.bytes());
    context.update(integrity.bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&context.sign().as_ref()[..16]);
    short
}

/// Sequence numbers of all keys. When this object and all its SAs are dropped, the thread that writes limits ends.
pub struct Reservations {
    store: Arc<Store>,
    requests: Option<Sender<Arc<Reserved>>>,
    writer: Option<JoinHandle<()>>,
}

/// Errors of reserving sequence numbers.
#[derive(Debug, thiserror::Error)]
pub enum ReservationError {
    /// Another outbound SA has this key.
    #[error("another outbound SA uses this key: each outbound SA needs its own key")]
    InUse,
    /// Numbers of this key may have been used, but the file has no record of the key.
    #[error(
        "the key has encrypted before, but no sequence numbers are reserved for it in this state directory: rekey"
    )]
    NotReserved,
    /// All numbers of this key may have been used.
    #[error("all sequence numbers of this key may have been used: rekey")]
    Exhausted,
    /// The file cannot be written.
    #[error("cannot reserve sequence numbers on disk: {0}")]
    Io(#[from] io::Error),
}

struct Store {
    file: File,
    state: Mutex<State>,
    /// Makes writes fail like a full disk, for tests.
    #[cfg(test)]
    is_full: AtomicBool,
}

#[derive(Default)]
struct State {
    records: HashMap<Fingerprint, Record>,
    /// Records whose first write failed, with their slots. Invariant: the records of all other slots are on disk.
    unwritten: HashMap<Fingerprint, u64>,
}

struct Record {
    slot: u64,
    limit: u64,
    used: bool,
}

/// State shared by an SA and the thread that writes limits.
struct Reserved {
    fingerprint: Fingerprint,
    /// The highest number that may be used.
    limit: AtomicU64,
    /// The highest number that the SA can use: a number of 32 bits without ESN, and of 64 bits with ESN.
    last: u64,
    asked: AtomicBool,
}

/// The sequence numbers of one SA.
pub struct Numbers {
    next: u64,
    /// Numbers below this value are issued without reading the limit again.
    calm: u64,
    reserved: Arc<Reserved>,
    requests: Sender<Arc<Reserved>>,
    store: Arc<Store>,
}

impl Reservations {
    /// Opens the file in a directory. Creates the directory if it is missing.
    ///
    /// # Errors
    /// The kernel's error, another process uses the file, or a record cannot be read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory)?;
        let path = directory.join(FILE);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            let problem = format!(
                "{}: another process has it open, and only one may use it ({error})",
                path.display()
            );
            io::Error::new(io::ErrorKind::AddrInUse, problem)
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let state = read(&bytes).map_err(|slot| {
            let problem = format!(
                "{}: record {slot} is damaged, so the used sequence numbers are unknown: give all SAs new \
                 keys, then remove the file",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, problem)
        })?;
        file.sync_all()?;
        fs::File::open(directory)?.sync_all()?;
        let store = Arc::new(Store {
            file,
            state: Mutex::new(state),
            #[cfg(test)]
            is_full: AtomicBool::new(false),
        });
        let (requests, waiting) = bounded(WAITING);
        let writer = {
            let store = Arc::clone(&store);
            thread::Builder::new()
                .name("esp-numbers".into())
                .spawn(move || keep(&store, &waiting))?
        };
        Ok(Self {
            store,
            requests: Some(requests),
            writer: Some(writer),
        })
    }

    /// Reserves numbers for a key that has encrypted before. Does the same as [`Reservations::claim`], but fails if the
    /// key has no record.
    ///
    /// # Errors
    /// See [`ReservationError`].
    pub fn resume(&self, fingerprint: Fingerprint, last: u64) -> Result<Numbers, ReservationError> {
        let reserved = |record: &Record| record.limit != 0;
        if !self
            .store
            .lock()
            .records
            .get(&fingerprint)
            .is_some_and(reserved)
        {
            return Err(ReservationError::NotReserved);
        }
        self.claim(fingerprint, last)
    }

    /// Reserves the first numbers for a key, above all numbers that may have been used. `last` is the highest number
    /// that the SA can use.
    ///
    /// # Errors
    /// See [`ReservationError`].
    pub fn claim(&self, fingerprint: Fingerprint, last: u64) -> Result<Numbers, ReservationError> {
        // `last` + 1 must not overflow.
        let last = last.min(u64::MAX - 1);
        let mut state = self.store.lock();
        self.store.fill_slots(&mut state)?;
        let slots = state.records.len() as u64;
        let record = state.records.entry(fingerprint).or_insert(Record {
            slot: slots,
            limit: 0,
            used: false,
        });
        if record.used {
            return Err(ReservationError::InUse);
        }
        if record.limit >= last {
            return Err(ReservationError::Exhausted);
        }
        let next = record.limit + 1;
        let limit = next_limit(record.limit, last);
        let slot = record.slot;
        let written = self.store.write(slot, &fingerprint, limit);
        if let Err(error) = written.and_then(|()| self.store.file.sync_data()) {
            // After a failed write, the disk may have the old or the new limit. So the slot of a new key stays taken,
            // and the limit in memory does not rise.
            if record.limit == 0 {
                state.unwritten.insert(fingerprint, slot);
            }
            return Err(error.into());
        }
        record.limit = limit;
        record.used = true;
        let requests = self.requests.clone().ok_or(ReservationError::Exhausted)?;
        Ok(Numbers {
            next,
            calm: 0,
            reserved: Arc::new(Reserved {
                fingerprint,
                limit: AtomicU64::new(limit),
                last,
                asked: AtomicBool::new(false),
            }),
            requests,
            store: Arc::clone(&self.store),
        })
    }
}

impl Drop for Reservations {
    fn drop(&mut self) {
        self.requests = None;
        // SAs that still exist keep the thread running, and waiting for it would never end. So this code waits only if
        // no SA is left.
        if let Some(writer) = self.writer.take()
            && Arc::strong_count(&self.store) == 2
        {
            // A panic of the thread is ignored. It is not expected, and only means that no further numbers are
            // reserved.
            let _ = writer.join();
        }
    }
}

impl Numbers {
    /// Returns the next number. Never returns a number twice.
    ///
    /// # Errors
    /// [`PacketDrop::SequenceExhausted`], [`PacketDrop::SequenceNotReserved`].
    #[inline]
    pub fn take(&mut self) -> Result<u64, PacketDrop> {
        if self.next >= self.calm {
            self.look_at_limit()?;
        }
        let number = self.next;
        self.next += 1;
        Ok(number)
    }

    /// Requests further numbers if few are left. Fails if none is left.
    #[cold]
    fn look_at_limit(&mut self) -> Result<(), PacketDrop> {
        let limit = self.reserved.limit.load(Ordering::Acquire);
        if limit - self.next.min(limit) < CHUNK / 2 && limit < self.reserved.last {
            self.ask();
        }
        if self.next > limit {
            return Err(if limit >= self.reserved.last {
                PacketDrop::SequenceExhausted
            } else {
                PacketDrop::SequenceNotReserved
            });
        }
        self.calm = if limit < self.reserved.last {
            limit.saturating_sub(CHUNK / 2)
        } else {
            limit
        };
        Ok(())
    }

    /// Returns the fingerprint of the key that these numbers belong to.
    pub fn fingerprint(&self) -> Fingerprint {
        self.reserved.fingerprint
    }

    /// Returns the number that [`Numbers::take`] returned last. Before the first call, this is the number before the
    /// first one.
    pub fn last(&self) -> u64 {
        self.next - 1
    }

    #[cold]
    fn ask(&self) {
        let asked = &self.reserved.asked;
        if !asked.swap(true, Ordering::AcqRel)
            && self.requests.try_send(Arc::clone(&self.reserved)).is_err()
        {
            asked.store(false, Ordering::Release);
        }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        if let Some(record) = self
            .store
            .lock()
            .records
            .get_mut(&self.reserved.fingerprint)
        {
            record.used = false;
        }
    }
}

impl Store {
    /// Locks the state. Ignores poisoning: the state changes in single steps, so the state is consistent even after a
    /// panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the records whose first write failed. Without them, a later record would follow a hole in the file, which
    /// `read` reports as damage. Their limit is 0, because none of their numbers was issued.
    fn fill_slots(&self, state: &mut State) -> io::Result<()> {
        if state.unwritten.is_empty() {
            return Ok(());
        }
        for (fingerprint, slot) in &state.unwritten {
            self.write(*slot, fingerprint, 0)?;
        }
        self.file.sync_data()?;
        state.unwritten.clear();
        Ok(())
    }

    fn write(&self, slot: u64, fingerprint: &Fingerprint, limit: u64) -> io::Result<()> {
        #[cfg(test)]
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file
            .write_all_at(&encode(fingerprint, limit), slot * RECORD as u64)
    }
}

/// Writes limits until all senders are dropped. One sync covers all requests that arrived during the previous write.
fn keep(store: &Store, requests: &Receiver<Arc<Reserved>>) {
    while let Ok(first) = requests.recv() {
        let wanted: Vec<_> = std::iter::once(first).chain(requests.try_iter()).collect();
        let mut state = store.lock();
        let raised = raise(store, &state, &wanted);
        for (at, reserved) in wanted.iter().enumerate() {
            if let Ok(limits) = &raised
                && let Some(record) = state.records.get_mut(&reserved.fingerprint)
            {
                record.limit = record.limit.max(limits[at]);
                reserved.limit.store(limits[at], Ordering::Release);
            }
            // Clears the flag even if the write failed, so that the next packet may request again.
            reserved.asked.store(false, Ordering::Release);
        }
    }
}

/// Writes and syncs new limits, and returns them. The caller then raises the limits in memory.
fn raise(store: &Store, state: &State, wanted: &[Arc<Reserved>]) -> io::Result<Vec<u64>> {
    let mut limits = Vec::with_capacity(wanted.len());
    for reserved in wanted {
        let Some(record) = state.records.get(&reserved.fingerprint) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let limit = next_limit(record.limit, reserved.last);
        store.write(record.slot, &reserved.fingerprint, limit)?;
        limits.push(limit);
    }
    store.file.sync_data()?;
    Ok(limits)
}

fn next_limit(limit: u64, last: u64) -> u64 {
    limit.saturating_add(CHUNK).min(last)
}

fn encode(fingerprint: &Fingerprint, limit: u64) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..16].copy_from_slice(fingerprint);
    record[16..24].copy_from_slice(&limit.to_be_bytes());
    let sum = digest::digest(&digest::SHA256, &record[..24]);
    record[24..].copy_from_slice(&sum.as_ref()[..8]);
    record
}

/// Parses the records of a file. Returns the index of the first damaged record as an error. The last record may be cut
/// off or zero, if the machine stopped while the record was being added. This is not damage, because none of its
/// numbers was used.
fn read(bytes: &[u8]) -> Result<State, usize> {
    let mut state = State::default();
    let whole = bytes.len() / RECORD;
    for (slot, record) in bytes.chunks_exact(RECORD).enumerate() {
        if record.iter().all(|byte| *byte == 0) && slot + 1 == whole {
            continue;
        }
        let (mut fingerprint, mut limit) = ([0; 16], [0; 8]);
        fingerprint.copy_from_slice(&record[..16]);
        limit.copy_from_slice(&record[16..24]);
        let limit = u64::from_be_bytes(limit);
        if encode(&fingerprint, limit) != record {
            return Err(slot);
        }
        let slot_number = slot as u64;
        let record = Record {
            slot: slot_number,
            limit,
            used: false,
        };
        if state.records.insert(fingerprint, record).is_some() {
            return Err(slot);
        }
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fingerprint = [1; 16];
    const B: Fingerprint = [2; 16];

    /// Copies the state as a killed process leaves it: the current file without the lock.
    fn crashed(directory: &Path) -> tempfile::TempDir {
        let copy = tempfile::tempdir().unwrap();
        fs::copy(directory.join(FILE), copy.path().join(FILE)).unwrap();
        copy
    }

    #[test]
    fn a_disk_that_was_full_leaves_no_hole() {
        let directory = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(directory.path()).unwrap();
        let _first = reservations.claim(A, u64::MAX).unwrap();
        let is_full = &reservations.store.is_full;
        is_full.store(true, Ordering::Relaxed);
        for key in [B, [3; 16]] {
            let refused = reservations.claim(key, u64::MAX);
            assert!(matches!(refused, Err(ReservationError::Io(_))));
        }
        is_full.store(false, Ordering::Relaxed);
        let mut last = reservations.claim([4; 16], u64::MAX).unwrap();
        assert_eq!(last.take(), Ok(1));
        let copy = crashed(directory.path());
        let again = Reservations::open(copy.path()).unwrap();
        assert!(matches!(
            again.resume(B, u64::MAX),
            Err(ReservationError::NotReserved)
        ));
        assert_eq!(
            again.claim(B, u64::MAX).unwrap().take(),
            Ok(1),
            "no number was issued"
        );
        assert_eq!(
            again.resume([4; 16], u64::MAX).unwrap().take(),
            Ok(CHUNK + 1)
        );
        // After writes succeed again, the refused key also gets its numbers.
        assert_eq!(reservations.claim(B, u64::MAX).unwrap().take(), Ok(1));
    }

    #[test]
    fn after_a_crash_no_number_comes_again() {
        let directory = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(directory.path()).unwrap();
        let mut a = reservations.claim(A, u64::MAX).unwrap();
        let mut b = reservations.claim(B, u64::MAX).unwrap();
        let mut used = 0;
        // A copy of the file at some moment equals the file after a crash at that moment.
        for round in 0..20 {
            for _ in 0..CHUNK / 3 {
                match a.take() {
                    Ok(number) => {
                        assert_eq!(number, used + 1);
                        used = number;
                    }
                    Err(why) => {
                        assert_eq!(why, PacketDrop::SequenceNotReserved);
                        thread::yield_now();
                    }
                }
            }
            assert_eq!(b.take(), Ok(round + 1));
            let copy = crashed(directory.path());
            let again = Reservations::open(copy.path()).unwrap();
            assert!(again.claim(A, u64::MAX).unwrap().take().unwrap() > used);
            assert!(again.claim(B, u64::MAX).unwrap().take().unwrap() > round + 1);
        }
        assert!(used > 2 * CHUNK, "the thread has reserved more numbers");
    }

    #[test]
    fn a_key_is_one_sa_s_and_goes_on_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(directory.path()).unwrap();
        let mut first = reservations.claim(A, u64::MAX).unwrap();
        assert_eq!(first.take(), Ok(1));
        assert!(matches!(
            reservations.claim(A, u64::MAX),
            Err(ReservationError::InUse)
        ));
        drop(first);
        assert_eq!(
            reservations.claim(A, u64::MAX).unwrap().take(),
            Ok(CHUNK + 1)
        );
    }

    #[test]
    fn a_key_that_encrypted_before_takes_its_reservation() {
        let directory = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(directory.path()).unwrap();
        let unknown = reservations.resume(A, u64::MAX);
        assert!(matches!(unknown, Err(ReservationError::NotReserved)));
        drop(reservations.claim(A, u64::MAX).unwrap());
        let mut again = reservations.resume(A, u64::MAX).unwrap();
        assert_eq!(again.take(), Ok(CHUNK + 1));
    }

    #[test]
    fn numbers_end() {
        let directory = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(directory.path()).unwrap();
        let mut few = reservations.claim(A, 3).unwrap();
        let taken: Vec<_> = (0..5).map(|_| few.take()).collect();
        let end = Err(PacketDrop::SequenceExhausted);
        assert_eq!(taken, [Ok(1), Ok(2), Ok(3), end, end]);
        drop(few);
        assert!(matches!(
            reservations.claim(A, 3),
            Err(ReservationError::Exhausted)
        ));
        let mut all = reservations.claim(B, u64::MAX).unwrap();
        all.next = u64::MAX - 1;
        all.reserved.limit.store(u64::MAX, Ordering::Release);
        assert_eq!(all.take(), Ok(u64::MAX - 1));
    }

    #[test]
    fn one_process_has_the_file_and_damage_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let reservations = Reservations::open(directory.path()).unwrap();
        let error = Reservations::open(directory.path()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(reservations.claim(A, 9).unwrap());
        drop(reservations.claim(B, 9).unwrap());
        drop(reservations);
        let path = directory.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        assert_eq!(whole.len(), 2 * RECORD);
        for damaged in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[damaged] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let error = Reservations::open(directory.path()).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        // The crash cut off the record, or left zeros in place of it.
        for tail in [&[7; 31][..], &[0; RECORD], &[0; 40]] {
            fs::write(&path, [&whole, tail].concat()).unwrap();
            let again = Reservations::open(directory.path()).unwrap();
            let mut new = again.claim([3; 16], 9).unwrap();
            assert_eq!(new.take(), Ok(1));
            drop((new, again));
            let reread = Reservations::open(directory.path()).unwrap();
            assert!(matches!(
                reread.claim([3; 16], 9),
                Err(ReservationError::Exhausted)
            ));
        }
    }
}
