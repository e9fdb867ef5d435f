// SPDX-License-Identifier: Apache-2.0
//! Parses the lines of a case file.

use sluice_tables::{KeyField, Value};

/// The command in a line of a case file. Names are resolved when the command runs.
#[derive(Debug)]
pub(super) enum Command {
    Entry {
        table: String,
        key: Vec<KeyField>,
        priority: i32,
        target: Target,
    },
    Remove {
        table: String,
        key: Vec<KeyField>,
        priority: i32,
    },
    Default {
        table: String,
        target: Target,
    },
    Member {
        profile: String,
        id: u32,
        target: Target,
    },
    Group {
        profile: String,
        id: u32,
        members: Vec<(u32, u32, Option<u32>)>,
    },
    Multicast {
        id: u32,
        replicas: Vec<(u32, u16)>,
    },
    Clone {
        id: u32,
        replicas: Vec<(u32, u16)>,
        length: u32,
    },
    Meter {
        name: String,
        index: usize,
        rates: [u64; 4],
    },
    DirectMeter {
        table: String,
        key: Vec<KeyField>,
        priority: i32,
        rates: [u64; 4],
    },
    ValueSet {
        name: String,
        members: Vec<Vec<KeyField>>,
    },
    Port {
        port: u32,
        up: bool,
    },
    Time {
        us: u64,
    },
    Packet {
        port: u32,
        data: Vec<u8>,
    },
    Expect {
        port: u32,
        pattern: String,
    },
    Nothing,
    /// Makes packets wait in queues from now on. Each queue has room for `room` packets.
    Queues {
        room: usize,
    },
    /// Makes the oldest waiting packet leave its queue.
    Leave,
    Digest {
        name: String,
        fields: Vec<u8>,
    },
    Log {
        text: String,
    },
    CheckCounter {
        name: String,
        index: usize,
        packets: u64,
        bytes: u64,
    },
    CheckRegister {
        name: String,
        index: usize,
        value: Value,
    },
    CheckDirect {
        table: String,
        key: Vec<KeyField>,
        priority: i32,
        packets: u64,
        bytes: u64,
    },
    CheckCount {
        name: String,
        value: u64,
    },
}

/// The target of a table entry.
#[derive(Debug)]
pub(super) enum Target {
    Action(String, Vec<Value>),
    Member(u32),
    Group(u32),
    OneShot(Vec<(String, Vec<Value>, u32)>),
}

type Result<T> = std::result::Result<T, String>;

/// Parses a line. Returns `None` if the line is empty or only a comment.
pub(super) fn parse(line: &str) -> Result<Option<Command>> {
    let line = line.split('#').next().unwrap_or_default().trim();
    if line.is_empty() {
        return Ok(None);
    }
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    Ok(Some(match word {
        "entry" => {
            let (left, right) = split(rest, "=>")?;
            let (table, key, priority) = key_of(left)?;
            Command::Entry {
                table,
                key,
                priority,
                target: target(right)?,
            }
        }
        "remove" => {
            let (table, key, priority) = key_of(rest)?;
            Command::Remove {
                table,
                key,
                priority,
            }
        }
        "default" => {
            let (table, right) = split(rest, "=>")?;
            Command::Default {
                table: table.to_owned(),
                target: target(right)?,
            }
        }
        "member" => {
            let (left, right) = split(rest, "=>")?;
            let (profile, id) = split(left, " ")?;
            let (profile, id) = (profile.to_owned(), number(id)? as u32);
            Command::Member {
                profile,
                id,
                target: target(right)?,
            }
        }
        "group" => {
            let (left, right) = split(rest, "=")?;
            let (profile, id) = split(left, " ")?;
            let members = right
                .split_whitespace()
                .map(group_member)
                .collect::<Result<_>>()?;
            Command::Group {
                profile: profile.to_owned(),
                id: number(id)? as u32,
                members,
            }
        }
        "multicast" => {
            let (id, right) = split(rest, "=")?;
            Command::Multicast {
                id: number(id)? as u32,
                replicas: replicas(right)?,
            }
        }
        "clone" => {
            let (id, right) = split(rest, "=")?;
            let (right, length) = match right.split_once("length") {
                Some((right, length)) => (right, number(length.trim())? as u32),
                None => (right, 0),
            };
            Command::Clone {
                id: number(id)? as u32,
                replicas: replicas(right)?,
                length,
            }
        }
        "meter" => {
            let (left, right) = split(rest, "=")?;
            let (name, index) = cell(left)?;
            Command::Meter {
                name,
                index,
                rates: numbers(right)?,
            }
        }
        "directmeter" => {
            let (left, right) = split(rest, "=")?;
            let (table, key, priority) = key_of(left)?;
            Command::DirectMeter {
                table,
                key,
                priority,
                rates: numbers(right)?,
            }
        }
        "valueset" => {
            let (name, right) = split(rest, "=")?;
            let member = |text: &str| {
                text.split(',')
                    .map(|field| key_field(field.trim()))
                    .collect()
            };
            let members = right
                .split_whitespace()
                .map(member)
                .collect::<Result<_>>()?;
            Command::ValueSet {
                name: name.to_owned(),
                members,
            }
        }
        "port" => {
            let (port, state) = split(rest, " ")?;
            Command::Port {
                port: number(port)? as u32,
                up: state == "up",
            }
        }
        "time" => Command::Time { us: number(rest)? },
        "packet" => {
            let (port, data) = split(rest, " ")?;
            Command::Packet {
                port: number(port)? as u32,
                data: hex(data)?,
            }
        }
        "expect" => {
            let (port, pattern) = split(rest, " ")?;
            let pattern = pattern.replace(char::is_whitespace, "").to_lowercase();
            Command::Expect {
                port: number(port)? as u32,
                pattern,
            }
        }
        "nothing" => Command::Nothing,
        "queues" => Command::Queues {
            room: number(rest)? as usize,
        },
        "leave" => Command::Leave,
        "digest" => {
            let (name, fields) = split(rest, "=")?;
            Command::Digest {
                name: name.to_owned(),
                fields: hex(fields)?,
            }
        }
        "log" => Command::Log {
            text: rest.to_owned(),
        },
        "check" => check(rest)?,
        other => return Err(format!("there is no command \"{other}\"")),
    }))
}

fn check(rest: &str) -> Result<Command> {
    let (kind, rest) = split(rest, " ")?;
    let (left, right) = split(rest, "=")?;
    Ok(match kind {
        "counter" => {
            let ((name, index), [packets, bytes]) = (cell(left)?, numbers(right)?);
            Command::CheckCounter {
                name,
                index,
                packets,
                bytes,
            }
        }
        "register" => {
            let (name, index) = cell(left)?;
            Command::CheckRegister {
                name,
                index,
                value: value(right)?,
            }
        }
        "direct" => {
            let ((table, key, priority), [packets, bytes]) = (key_of(left)?, numbers(right)?);
            Command::CheckDirect {
                table,
                key,
                priority,
                packets,
                bytes,
            }
        }
        "count" => Command::CheckCount {
            name: left.to_owned(),
            value: number(right)?,
        },
        other => return Err(format!("there is nothing called \"{other}\" to check")),
    })
}

fn split<'a>(text: &'a str, at: &str) -> Result<(&'a str, &'a str)> {
    let (left, right) = text
        .split_once(at)
        .ok_or_else(|| format!("\"{at}\" is missing in \"{text}\""))?;
    Ok((left.trim(), right.trim()))
}

/// Parses `TABLE FIELD... [priority N]`.
fn key_of(text: &str) -> Result<(String, Vec<KeyField>, i32)> {
    let (text, priority) = match text.split_once("priority") {
        Some((text, priority)) => (text, number(priority.trim())? as i32),
        None => (text, 0),
    };
    let mut words = text.split_whitespace();
    let table = words.next().ok_or("a table is missing")?.to_owned();
    Ok((
        table,
        words.map(key_field).collect::<Result<_>>()?,
        priority,
    ))
}

/// Parses `V`, `V/PREFIX`, `V&&&MASK`, `LOW..HIGH`, `?V` (optional) or `*`.
fn key_field(word: &str) -> Result<KeyField> {
    if word == "*" {
        Ok(KeyField::DontCare)
    } else if let Some(optional) = word.strip_prefix('?') {
        Ok(KeyField::Optional(value(optional)?))
    } else if let Some((low, high)) = word.split_once("..") {
        Ok(KeyField::Range {
            low: value(low)?,
            high: value(high)?,
        })
    } else if let Some((bits, mask)) = word.split_once("&&&") {
        Ok(KeyField::Ternary {
            value: value(bits)?,
            mask: value(mask)?,
        })
    } else if let Some((bits, length)) = word.split_once('/') {
        Ok(KeyField::Lpm {
            value: value(bits)?,
            prefix_len: number(length)? as u32,
        })
    } else {
        Ok(KeyField::Exact(value(word)?))
    }
}

/// Parses `member ID`, `group ID`, `oneshot ACTION ARGS @WEIGHT, ...` or `ACTION ARGS`.
fn target(text: &str) -> Result<Target> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    match word {
        "member" => Ok(Target::Member(number(rest.trim())? as u32)),
        "group" => Ok(Target::Group(number(rest.trim())? as u32)),
        "oneshot" => {
            let member = |text: &str| {
                let (call, weight) = split(text, "@")?;
                let (name, args) = call_of(call)?;
                Ok((name, args, number(weight)? as u32))
            };
            Ok(Target::OneShot(
                rest.split(',').map(member).collect::<Result<_>>()?,
            ))
        }
        _ => {
            let (name, args) = call_of(text)?;
            Ok(Target::Action(name, args))
        }
    }
}

fn call_of(text: &str) -> Result<(String, Vec<Value>)> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("an action is missing")?.to_owned();
    Ok((name, words.map(value).collect::<Result<_>>()?))
}

/// Parses `MEMBER:WEIGHT[@PORT]`.
fn group_member(word: &str) -> Result<(u32, u32, Option<u32>)> {
    let (word, port) = match word.split_once('@') {
        Some((word, port)) => (word, Some(number(port)? as u32)),
        None => (word, None),
    };
    let (member, weight) = split(word, ":")?;
    Ok((number(member)? as u32, number(weight)? as u32, port))
}

/// Parses `PORT/INSTANCE ...`.
fn replicas(text: &str) -> Result<Vec<(u32, u16)>> {
    let replica = |word: &str| {
        let (port, instance) = split(word, "/")?;
        Ok((number(port)? as u32, number(instance)? as u16))
    };
    text.split_whitespace().map(replica).collect()
}

/// Parses `NAME[INDEX]`.
fn cell(text: &str) -> Result<(String, usize)> {
    let (name, index) = split(text.trim_end_matches(']'), "[")?;
    Ok((name.to_owned(), number(index)? as usize))
}

fn numbers<const N: usize>(text: &str) -> Result<[u64; N]> {
    let all: Vec<u64> = text.split_whitespace().map(number).collect::<Result<_>>()?;
    all.try_into()
        .map_err(|_| format!("{N} numbers are expected in \"{text}\""))
}

fn number(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("\"{text}\" is not a number"))
}

/// Parses a number of any size to big-endian bytes.
fn value(text: &str) -> Result<Value> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.len() % 2 == 1 => hex(&format!("0{digits}")),
        Some(digits) => hex(digits),
        None => number(text).map(|number| number.to_be_bytes().to_vec()),
    }
}

fn hex(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    if digits.len() % 2 == 1 {
        return Err(format!("\"{text}\" is half a byte too long"));
    }
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).unwrap_or("?");
        u8::from_str_radix(pair, 16).map_err(|_| format!("\"{pair}\" is not a byte"))
    };
    digits.chunks(2).map(byte).collect()
}
