// SPDX-License-Identifier: Apache-2.0
//! Reads counters, meters, registers, calculations, digests, field lists and checksums.

use std::collections::HashMap;

use super::cursor::{Cursor, Result};
use super::expressions::Expressions;
use super::headers::Headers;
use super::loader::Loader;
use super::references::FieldName;
use crate::externs::{
    Calculation, CalculationInput, Checksum, Counter, Digest, FieldList, HashAlgorithm, Meter,
    MeterUnit, Register,
};
use crate::ids::{DigestId, FieldListId};

/// Maximum number of cells in one array. Larger arrays are refused.
const MAX_CELLS: usize = 1 << 26;

/// Limit in bytes for all arrays of a program together. The size of a cell is estimated.
const MAX_CELL_BYTES: usize = 1 << 30;
const COUNTER_BYTES: usize = 16;
const METER_BYTES: usize = 128;

#[derive(Default)]
pub(super) struct Externs {
    pub(super) counters: Vec<Counter>,
    pub(super) meters: Vec<Meter>,
    pub(super) registers: Vec<Register>,
    pub(super) calculations: Vec<Calculation>,
    pub(super) digests: Vec<Digest>,
    pub(super) digest_ids: HashMap<u32, DigestId>,
    pub(super) field_lists: Vec<FieldList>,
    pub(super) field_list_ids: HashMap<u32, FieldListId>,
}

impl Externs {
    fn cell_bytes(&self) -> usize {
        let counters = self.counters.iter().map(|c| c.size * COUNTER_BYTES);
        let meters = self.meters.iter().map(|m| m.size * METER_BYTES);
        let words = |width: u16| usize::from(width).div_ceil(64) * 8;
        let registers = self.registers.iter().map(|r| r.size * words(r.width));
        counters.chain(meters).chain(registers).sum()
    }
}

pub(super) fn load(root: &Cursor<'_>, headers: &Headers) -> Result<Externs> {
    let mut externs = Externs::default();
    for json in root.list("counter_arrays")? {
        let size = cells(&json)?;
        externs.counters.push(Counter {
            name: json.name()?,
            size,
            table: None,
        });
    }
    for json in root.list("meter_arrays")? {
        externs.meters.push(load_meter(&json)?);
    }
    for json in root.list("register_arrays")? {
        let (size, width) = (cells(&json)?, json.at("bitwidth")?.width()?);
        externs.registers.push(Register {
            name: json.name()?,
            size,
            width,
        });
    }
    if externs.cell_bytes() > MAX_CELL_BYTES {
        return Err(root.unsupported(format!(
            "a program whose counters, meters and registers take {} MiB",
            externs.cell_bytes() >> 20
        )));
    }
    for json in root.list("calculations")? {
        externs.calculations.push(Calculation {
            name: json.name()?,
            algorithm: algorithm(&json.at("algo")?)?,
            input: headers.calculation_inputs(&json.at("input")?)?,
            replaceable: false,
        });
    }
    for json in root.list("learn_lists")? {
        let id = DigestId::new(externs.digests.len());
        externs.digest_ids.insert(json.at("id")?.u32()?, id);
        externs.digests.push(load_digest(&json, headers)?);
    }
    for json in root.list("field_lists")? {
        let json_id = json.at("id")?.u32()?;
        let mut fields = Vec::new();
        for element in json.list("elements")? {
            fields.push(headers.slot_named(&element.at("value")?)?);
        }
        externs
            .field_list_ids
            .insert(json_id, FieldListId::new(externs.field_lists.len()));
        externs.field_lists.push(FieldList {
            name: json.name()?,
            json_id,
            fields,
        });
    }
    Ok(externs)
}

/// Returns the number of cells of an array. Returns 0 for a direct array, which has one cell for each entry of its
/// table instead.
fn cells(json: &Cursor<'_>) -> Result<usize> {
    if json.flag("is_direct")? {
        return Ok(0);
    }
    match json.at("size")?.usize()? {
        size if size <= MAX_CELLS => Ok(size),
        size => Err(json.unsupported(format!("an array of {size} cells"))),
    }
}

fn load_meter(json: &Cursor<'_>) -> Result<Meter> {
    let unit = match json.at("type")?.str()? {
        "packets" => MeterUnit::Packets,
        "bytes" => MeterUnit::Bytes,
        other => return Err(json.error(format!("a meter of \"{other}\""))),
    };
    match json.get("rate_count").map_or(Ok(2), |count| count.u32())? {
        2 => {}
        count => return Err(json.unsupported(format!("a meter with {count} rates"))),
    }
    Ok(Meter {
        name: json.name()?,
        unit,
        size: cells(json)?,
        table: None,
    })
}

fn load_digest(json: &Cursor<'_>, headers: &Headers) -> Result<Digest> {
    let mut fields = Vec::new();
    for element in json.list("elements")? {
        let pair = element.at("value")?;
        fields.push((pair.nth(1)?.str()?.to_owned(), headers.slot_named(&pair)?));
    }
    Ok(Digest {
        name: json.name()?,
        fields,
    })
}

/// Returns the hash algorithm with this BMv2 name.
pub(super) fn algorithm(name: &Cursor<'_>) -> Result<HashAlgorithm> {
    Ok(match name.str()? {
        "crc16" => HashAlgorithm::Crc16,
        "crc32" => HashAlgorithm::Crc32,
        "crcCCITT" => HashAlgorithm::CrcCcitt,
        "crc8_custom" => HashAlgorithm::Crc8Custom,
        "crc16_custom" => HashAlgorithm::Crc16Custom,
        "crc32_custom" => HashAlgorithm::Crc32Custom,
        "crc64_custom" => HashAlgorithm::Crc64Custom,
        "csum16" | "cksum16" => HashAlgorithm::Csum16,
        "xor16" => HashAlgorithm::Xor16,
        "xor32" => HashAlgorithm::Xor32,
        "identity" => HashAlgorithm::Identity,
        "xxh64" | "bmv2_hash" => HashAlgorithm::Xxh64,
        "random" => HashAlgorithm::Random,
        other => return Err(name.unsupported(format!("the hash algorithm \"{other}\""))),
    })
}

impl Headers {
    pub(super) fn calculation_inputs(&self, json: &Cursor<'_>) -> Result<Vec<CalculationInput>> {
        json.items()?
            .iter()
            .map(|input| self.calculation_input(input))
            .collect()
    }

    fn calculation_input(&self, json: &Cursor<'_>) -> Result<CalculationInput> {
        match json.at("type")?.str()? {
            "payload" => Ok(CalculationInput::Payload),
            "header" => Ok(CalculationInput::Header(
                self.header_named(&json.at("value")?)?,
            )),
            "hexstr" => {
                let width = json.at("bitwidth")?.width()?;
                let bytes = json
                    .at("value")?
                    .hex_bytes(usize::from(width).div_ceil(8))?;
                Ok(CalculationInput::Constant(bytes, width))
            }
            "field" => match self.field_named(&json.at("value")?)? {
                FieldName::Field(header, slot) => Ok(CalculationInput::Field(header, slot)),
                FieldName::Varbit(header) => Ok(CalculationInput::Varbit(header)),
                FieldName::Valid(_) => Err(json.unsupported("$valid$ as input of a hash")),
            },
            other => Err(json.unsupported(format!("\"{other}\" as input of a hash"))),
        }
    }
}

impl Loader {
    pub(super) fn checksums(&self, root: &Cursor<'_>) -> Result<Vec<Checksum>> {
        root.list("checksums")?
            .iter()
            .map(|json| self.checksum(json))
            .collect()
    }

    fn checksum(&self, json: &Cursor<'_>) -> Result<Checksum> {
        let ty = json.get("type").map_or(Ok("generic"), |ty| ty.str())?;
        if ty != "generic" {
            return Err(json.unsupported(format!("a checksum of type \"{ty}\"")));
        }
        let target = json.at("target")?;
        let FieldName::Field(header, slot) = self.headers.field_named(&target)? else {
            return Err(target.error("an ordinary field is expected"));
        };
        let condition = json
            .get("if_cond")
            .map(|condition| Expressions::new(self, &[]).bool(&condition))
            .transpose()?;
        let flag = |key| json.get(key).map_or(Ok(true), |flag| flag.bool());
        Ok(Checksum {
            name: json.name()?,
            header,
            target: slot,
            calculation: self.calculation_named(&json.at("calculation")?)?,
            condition,
            verify: flag("verify")?,
            update: flag("update")?,
        })
    }
}
