// SPDX-License-Identifier: Apache-2.0
//! Runs a case file on an engine, with packets in memory.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use sluice_engine::{
    Admission, Arrival, Config, Congestion, Engine, PacketIn, Queued, Sink, TrafficManager,
};
use sluice_interpreter::Interpreter;
use sluice_native::{Code, Native};
use sluice_program::{ActionId, DigestId, ProfileId, Program, TableId};
use sluice_tables::{
    ActionCall, CloneSession, Entry, EntryAction, EntrySpec, GroupMember, GroupSpec, KeyField,
    MemberSpec, MeterConfig, OneShotMember, Reader, Replica, Store, Value, canonical,
};

use super::command::{Command, Target, parse};

type Result<T> = std::result::Result<T, String>;

/// Output that no command has checked yet, and the queues.
#[derive(Default)]
struct Outputs {
    packets: Vec<(u32, Vec<u8>)>,
    digests: Vec<(DigestId, Vec<u8>)>,
    logs: Vec<String>,
    /// Waiting packets, with their ports and priorities.
    queued: VecDeque<((u32, u32), Box<Queued>)>,
    /// Maximum number of waiting packets per port and priority.
    room: usize,
}

impl Outputs {
    fn waiting(&self, place: (u32, u32)) -> usize {
        self.queued.iter().filter(|(at, _)| *at == place).count()
    }
}

impl Sink for Outputs {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        self.packets.push((port, data.to_vec()));
    }

    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        let place = (arrival.port, arrival.priority);
        let depth = self.waiting(place);
        if depth >= self.room {
            return Admission::Full;
        }
        let queued = arrival.take(None, depth as u32);
        self.queued.push_back((place, queued));
        Admission::Waits
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        self.digests.push((digest, fields.to_vec()));
    }

    fn log(&mut self, message: &str) {
        self.logs.push(message.to_owned());
    }
}

/// Number of queues per port.
const QUEUES: u32 = 4;

/// An engine that can run case files.
pub(crate) trait Runs: Engine + Sized {
    /// Creates an engine for a program.
    ///
    /// # Errors
    /// Fails, with the reason, if the engine cannot run the program or leaves parts of it to the interpreter.
    fn program(program: &Arc<Program>, config: Config) -> Result<Self>;
}

impl Runs for Interpreter {
    fn program(program: &Arc<Program>, config: Config) -> Result<Self> {
        Ok(Self::new(Arc::clone(program), config))
    }
}

impl Runs for Native {
    fn program(program: &Arc<Program>, config: Config) -> Result<Self> {
        let (code, report) = Code::compile(program, &config).map_err(|error| error.to_string())?;
        if report.not_compiled.is_empty() {
            Ok(Self::new(code, config))
        } else {
            Err(format!("not compiled: {:?}", report.not_compiled))
        }
    }
}

pub(crate) struct Bench<E> {
    program: Arc<Program>,
    pub(crate) store: Arc<Store>,
    pub(crate) reader: Reader,
    pub(crate) switch: TrafficManager<E>,
    outputs: Outputs,
    congestion: Congestion,
    /// Whether every packet enters a queue and leaves it immediately.
    through_queues: bool,
    /// Whether the last command about packets was an expectation. If so, no unchecked output may be left before the
    /// next packet.
    expecting: bool,
    now_us: u64,
}

/// Runs a case file on a compiled program. With `through_queues`, every packet passes through a queue before egress,
/// without delay.
///
/// # Errors
/// Returns the first line that fails, with the reason.
#[allow(dead_code)] // the benchmarks have no case file
pub(crate) fn run_file<E: Runs>(json: &Path, case: &Path, through_queues: bool) -> Result<()> {
    let text = std::fs::read_to_string(case).map_err(|error| error.to_string())?;
    let name = case.display().to_string();
    let mut bench = Bench::<E>::load(json)?;
    if through_queues && !text.lines().any(|line| line.starts_with("queues ")) {
        bench.through_queues();
    }
    bench.run_text(&text, &name)?;
    bench
        .nothing_left()
        .map_err(|error| format!("{name}: at the end: {error}"))
}

impl<E: Runs> Bench<E> {
    /// Creates a switch with a compiled program and empty tables.
    ///
    /// # Errors
    /// Fails, with the reason, if the program cannot be loaded.
    pub(crate) fn load(json: &Path) -> Result<Self> {
        let json = std::fs::read(json).map_err(|error| format!("{}: {error}", json.display()))?;
        Self::from_json(&json)
    }

    /// Like [`load`](Self::load), but takes the text of the compiled program.
    ///
    /// # Errors
    /// The same as for [`load`](Self::load).
    pub(crate) fn from_json(json: &[u8]) -> Result<Self> {
        let program = Arc::new(Program::from_json(json).map_err(|error| error.to_string())?);
        let store = Arc::new(Store::new(Arc::clone(&program)));
        let config = Config {
            queues: QUEUES,
            ..Config::default()
        };
        Ok(Self {
            congestion: config.congestion.clone(),
            through_queues: false,
            reader: store.reader(),
            switch: TrafficManager::new(<E as Runs>::program(&program, config)?),
            program,
            store,
            outputs: Outputs::default(),
            expecting: false,
            now_us: 0,
        })
    }

    fn through_queues(&mut self) {
        self.through_queues = true;
        self.outputs.room = usize::MAX;
        self.congestion.set(true);
    }

    /// Makes the oldest waiting packet leave its queue. Returns false if no packet waits.
    fn leave(&mut self) -> bool {
        let Some((place, mut queued)) = self.outputs.queued.pop_front() else {
            return false;
        };
        let depth = self.outputs.waiting(place) as u32;
        let (tables, externs) = (self.reader.pin(), self.store.externs());
        let (now_us, outputs) = (self.now_us, &mut self.outputs);
        self.switch
            .leave_queue(&tables, externs, now_us, &mut queued, depth, outputs);
        true
    }

    /// Runs lines of a case file.
    ///
    /// # Errors
    /// Returns the first line that fails, with the reason.
    pub(crate) fn run_text(&mut self, text: &str, name: &str) -> Result<()> {
        for (index, line) in text.lines().enumerate() {
            let at = |error: String| format!("{name}:{}: {error}", index + 1);
            if let Some(command) = parse(line).map_err(at)? {
                self.run(command).map_err(at)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, command: Command) -> Result<()> {
        match command {
            Command::Packet { port, data } => {
                if std::mem::take(&mut self.expecting) {
                    self.nothing_left()?;
                }
                let tables = self.reader.pin();
                let input = PacketIn {
                    data: &data,
                    port,
                    now_us: self.now_us,
                };
                self.switch
                    .process(&tables, self.store.externs(), input, &mut self.outputs);
                drop(tables);
                if self.through_queues {
                    // Loops because a recirculated packet enters a queue again.
                    while self.leave() {}
                }
                Ok(())
            }
            Command::Expect { port, pattern } => {
                self.expecting = true;
                self.expect(port, &pattern)
            }
            Command::Nothing => self.nothing_left(),
            Command::Queues { room } => {
                self.outputs.room = room;
                self.congestion.set(true);
                Ok(())
            }
            Command::Leave if self.leave() => Ok(()),
            Command::Leave => Err("no packet waits in a queue".to_owned()),
            Command::Digest { name, fields } => {
                // p4c generates one digest for each call of digest(), and names it after the digest's type. So several
                // digests may have the same name.
                let named = |id: DigestId| self.program.digest(id).name == name;
                match self.outputs.digests.first() {
                    Some((sent, bytes)) if named(*sent) && *bytes == fields => {
                        self.outputs.digests.remove(0);
                        Ok(())
                    }
                    other => Err(format!("the digests are {other:?}")),
                }
            }
            Command::Log { text } => match self.outputs.logs.first() {
                Some(line) if *line == text => {
                    self.outputs.logs.remove(0);
                    Ok(())
                }
                other => Err(format!("the log contains {other:?}")),
            },
            Command::Time { us } => {
                self.now_us = us;
                Ok(())
            }
            Command::Port { port, up } => {
                self.store.port_status(port, up);
                Ok(())
            }
            Command::Meter { name, index, rates } => {
                let id = self
                    .program
                    .meter_by_name(&name)
                    .ok_or("there is no such meter")?;
                let meter = self
                    .store
                    .externs()
                    .meter(id, index)
                    .ok_or("the index is beyond the array")?;
                meter.set_config(Some(config(rates)));
                Ok(())
            }
            Command::DirectMeter {
                table,
                key,
                priority,
                rates,
            } => {
                let entry = self.entry(&table, &key, priority)?;
                let meter = entry.meter().ok_or("the table has no direct meter")?;
                meter.set_config(Some(config(rates)));
                Ok(())
            }
            check @ (Command::CheckCounter { .. }
            | Command::CheckRegister { .. }
            | Command::CheckDirect { .. }
            | Command::CheckCount { .. }) => self.check(check),
            change => self.change(change),
        }
    }

    fn change(&self, command: Command) -> Result<()> {
        let mut tx = self.store.transaction();
        let result = match command {
            Command::Entry {
                table,
                key,
                priority,
                target,
            } => {
                let spec = EntrySpec {
                    key,
                    priority,
                    action: self.action(target)?,
                    idle_timeout_ns: 0,
                    controller_metadata: 0,
                    metadata: Vec::new(),
                };
                tx.insert(self.table(&table)?, spec)
            }
            Command::Remove {
                table,
                key,
                priority,
            } => tx.delete(self.table(&table)?, &key, priority),
            Command::Default { table, target } => {
                tx.set_default(self.table(&table)?, Some(self.action(target)?.into()))
            }
            Command::Member {
                profile,
                id,
                target,
            } => {
                let EntryAction::Direct(call) = self.action(target)? else {
                    return Err("a member has an action".into());
                };
                tx.member_insert(self.profile(&profile)?, &MemberSpec { id, call })
            }
            Command::Group {
                profile,
                id,
                members,
            } => {
                let members = members
                    .into_iter()
                    .map(|(member, weight, watch_port)| GroupMember {
                        member,
                        weight,
                        watch_port,
                    })
                    .collect();
                tx.group_insert(
                    self.profile(&profile)?,
                    &GroupSpec {
                        id,
                        max_size: 0,
                        members,
                    },
                )
            }
            Command::Multicast { id, replicas } => tx.multicast_insert(id, replicas_of(replicas)),
            Command::Clone {
                id,
                replicas,
                length,
            } => {
                let replicas = replicas_of(replicas);
                let session = CloneSession {
                    replicas,
                    class_of_service: 0,
                    packet_length: length,
                };
                tx.clone_session_insert(id, session)
            }
            Command::ValueSet { name, members } => {
                let id = self.program.value_set_by_name(&name);
                tx.value_set_modify(id.ok_or("there is no such value set")?, members)
            }
            other => return Err(format!("{other:?} does not change tables")),
        };
        result.map_err(|error| error.to_string())?;
        tx.commit();
        Ok(())
    }

    fn table(&self, name: &str) -> Result<TableId> {
        self.program
            .table_by_name(name)
            .ok_or_else(|| format!("there is no table {name}"))
    }

    fn profile(&self, name: &str) -> Result<ProfileId> {
        self.program
            .profile_by_name(name)
            .ok_or_else(|| format!("there is no profile {name}"))
    }

    fn call(&self, name: &str, params: Vec<Value>) -> Result<ActionCall> {
        let id: Option<ActionId> = self.program.action_by_name(name);
        Ok(ActionCall {
            action: id.ok_or_else(|| format!("there is no action {name}"))?,
            params,
        })
    }

    fn action(&self, target: Target) -> Result<EntryAction> {
        Ok(match target {
            Target::Action(name, params) => EntryAction::Direct(self.call(&name, params)?),
            Target::Member(id) => EntryAction::Member(id),
            Target::Group(id) => EntryAction::Group(id),
            Target::OneShot(members) => EntryAction::OneShot(
                members
                    .into_iter()
                    .map(|(name, params, weight)| {
                        let call = self.call(&name, params)?;
                        Ok(OneShotMember {
                            call,
                            weight,
                            watch_port: None,
                        })
                    })
                    .collect::<Result<_>>()?,
            ),
        })
    }

    /// Compares the first unchecked packet that was sent through this port with a pattern. The order of packets on
    /// different ports does not matter.
    fn expect(&mut self, port: u32, pattern: &str) -> Result<()> {
        let packets = &mut self.outputs.packets;
        let Some(index) = packets.iter().position(|(by, _)| *by == port) else {
            let others: Vec<_> = packets.iter().map(|(by, data)| (by, text(data))).collect();
            return Err(format!(
                "nothing left by port {port}; what left: {others:?}"
            ));
        };
        let (_, data) = packets.remove(index);
        let data = text(&data);
        let (pattern, open) = match pattern.strip_suffix("...") {
            Some(prefix) => (prefix, true),
            None => (pattern, false),
        };
        let equal = |(want, have): (char, char)| want == '*' || want == have;
        let length_fits = data.len() == pattern.len() || open && data.len() > pattern.len();
        if length_fits && pattern.chars().zip(data.chars()).all(equal) {
            return Ok(());
        }
        Err(format!(
            "port {port}\n  expected {pattern}\n       got {data}"
        ))
    }

    fn nothing_left(&self) -> Result<()> {
        if let Some((port, data)) = self.outputs.packets.first() {
            return Err(format!("not expected: port {port} {}", text(data)));
        }
        if let Some((digest, fields)) = self.outputs.digests.first() {
            return Err(format!("not expected: digest {digest:?} {}", text(fields)));
        }
        Ok(())
    }

    fn check(&mut self, command: Command) -> Result<()> {
        let externs = self.store.externs();
        let (have, want) = match command {
            Command::CheckCounter {
                name,
                index,
                packets,
                bytes,
            } => {
                let id = self
                    .program
                    .counter_by_name(&name)
                    .ok_or("there is no such counter")?;
                let cell = externs
                    .counter(id, index)
                    .ok_or("the index is beyond the array")?;
                (
                    format!("{:?}", cell.get()),
                    format!("{:?}", (packets, bytes)),
                )
            }
            Command::CheckRegister { name, index, value } => {
                let id = self
                    .program
                    .register_by_name(&name)
                    .ok_or("there is no such register")?;
                let have = externs
                    .register_read(id, index)
                    .ok_or("the index is beyond the array")?;
                (text(&have), text(&canonical(&value)))
            }
            Command::CheckDirect {
                table,
                key,
                priority,
                packets,
                bytes,
            } => {
                let have = self
                    .entry(&table, &key, priority)?
                    .state()
                    .map_or((0, 0), |state| state.counter().get());
                (format!("{have:?}"), format!("{:?}", (packets, bytes)))
            }
            Command::CheckCount { name, value } => {
                let named = self.switch.counters().named();
                let have = named.iter().find(|(known, _)| *known == name);
                let have = have.ok_or("the switch has no such counter")?.1;
                (have.to_string(), value.to_string())
            }
            other => return Err(format!("{other:?} is not a check")),
        };
        if have == want {
            Ok(())
        } else {
            Err(format!("expected {want}, got {have}"))
        }
    }

    fn entry(&self, table: &str, key: &[KeyField], priority: i32) -> Result<Entry> {
        let entry = self.store.view().entry(self.table(table)?, key, priority);
        entry.map_err(|error| error.to_string())
    }
}

fn config([cir, cburst, pir, pburst]: [u64; 4]) -> MeterConfig {
    MeterConfig {
        cir,
        cburst,
        pir,
        pburst,
        excess: None,
    }
}

fn replicas_of(replicas: Vec<(u32, u16)>) -> Vec<Replica> {
    replicas
        .into_iter()
        .map(|(port, instance)| Replica::new(port, instance))
        .collect()
}

fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
