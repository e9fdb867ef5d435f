// SPDX-License-Identifier: Apache-2.0
//! Translates the values of counters and meters, for cells of arrays and for table entries (P4Runtime
//! specification, "CounterEntry", "MeterEntry").

use sluice_tables::{Meter, MeterConfig as TableMeterConfig};

use crate::error::{UpdateError, UpdateResult};
use crate::proto::v1::{CounterData, MeterConfig, MeterCounterData};
use crate::schema::MeterType;

/// Decodes a counter's value.
pub(crate) fn decode_counter(data: &CounterData) -> UpdateResult<(u64, u64)> {
    let value = |value: i64| {
        u64::try_from(value).map_err(|_| UpdateError::invalid("a counter cannot be negative"))
    };
    Ok((value(data.packet_count)?, value(data.byte_count)?))
}

/// Encodes a counter's value.
pub(crate) fn encode_counter(packets: u64, bytes: u64) -> CounterData {
    let value = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    CounterData {
        packet_count: value(packets),
        byte_count: value(bytes),
    }
}

/// Decodes a meter's configuration. The rules depend on the meter's type.
pub(crate) fn decode_config(
    config: &MeterConfig,
    kind: MeterType,
) -> UpdateResult<TableMeterConfig> {
    let rate = |name: &str, value: i64| {
        u64::try_from(value)
            .map_err(|_| UpdateError::invalid(format!("{name} of a meter is negative: {value}")))
    };
    let single_rate = config.pir == config.cir && config.pburst == config.cburst;
    match kind {
        MeterType::SingleRateThreeColor | MeterType::SingleRateTwoColor if !single_rate => {
            return Err(UpdateError::invalid(
                "in a single-rate meter, pir must equal cir, and pburst must equal cburst",
            ));
        }
        MeterType::SingleRateThreeColor => {}
        _ if config.eburst != 0 => {
            return Err(UpdateError::invalid(
                "eburst must be 0, except in single-rate three-colour meters",
            ));
        }
        _ => {}
    }
    if config.pir < config.cir {
        return Err(UpdateError::invalid(
            "pir is below cir (RFC 2698 section 2)",
        ));
    }
    Ok(TableMeterConfig {
        cir: rate("cir", config.cir)?,
        cburst: rate("cburst", config.cburst)?,
        pir: rate("pir", config.pir)?,
        pburst: rate("pburst", config.pburst)?,
        excess: match kind {
            MeterType::SingleRateThreeColor => Some(rate("eburst", config.eburst)?),
            _ => None,
        },
    })
}

/// Encodes a meter's configuration.
pub(crate) fn encode_config(config: TableMeterConfig) -> Option<MeterConfig> {
    Some(MeterConfig {
        cir: i64::try_from(config.cir).ok()?,
        cburst: i64::try_from(config.cburst).ok()?,
        pir: i64::try_from(config.pir).ok()?,
        pburst: i64::try_from(config.pburst).ok()?,
        eburst: i64::try_from(config.excess.unwrap_or(0)).ok()?,
    })
}

/// Encodes a meter's per-colour counters.
pub(crate) fn encode_colors(meter: &Meter) -> MeterCounterData {
    let [green, yellow, red] = meter.colors().each_ref().map(|cell| {
        let (packets, bytes) = cell.get();
        Some(encode_counter(packets, bytes))
    });
    MeterCounterData { green, yellow, red }
}

/// Resets a meter's per-colour counters to 0.
pub(crate) fn reset_colors(meter: &Meter) {
    meter.colors().iter().for_each(|cell| cell.set(0, 0));
}

/// Returns whether a client asks to reset the per-colour counters. The only accepted value of these counters
/// is 0.
pub(crate) fn check_colors(counters: Option<&MeterCounterData>) -> UpdateResult<bool> {
    let Some(counters) = counters else {
        return Ok(false);
    };
    let colors = [counters.green, counters.yellow, counters.red];
    let zero = |data: &CounterData| data.packet_count == 0 && data.byte_count == 0;
    if colors.iter().flatten().all(zero) {
        return Ok(true);
    }
    Err(UpdateError::invalid(
        "a meter's per-colour counters can only be set to 0",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    const PLAIN: MeterConfig = MeterConfig {
        cir: 10,
        cburst: 2,
        pir: 20,
        pburst: 4,
        eburst: 0,
    };

    #[test]
    fn meter_configurations_follow_their_type() {
        let code = |config: MeterConfig, kind| decode_config(&config, kind).map_err(|e| e.code);
        assert!(code(PLAIN, MeterType::TwoRateThreeColor).is_ok());
        assert_eq!(
            code(PLAIN, MeterType::SingleRateTwoColor),
            Err(Code::InvalidArgument)
        );
        let single = MeterConfig {
            pir: 10,
            pburst: 2,
            ..PLAIN
        };
        assert!(code(single, MeterType::SingleRateTwoColor).is_ok());
        let excess = MeterConfig {
            eburst: 7,
            ..single
        };
        assert_eq!(
            decode_config(&excess, MeterType::SingleRateThreeColor)
                .map(encode_config)
                .unwrap(),
            Some(excess)
        );
        assert_eq!(
            code(PLAIN, MeterType::SingleRateThreeColor),
            Err(Code::InvalidArgument)
        );
        for wrong in [
            MeterConfig { eburst: 1, ..PLAIN },
            MeterConfig { cir: -1, ..PLAIN },
            MeterConfig { pir: 9, ..PLAIN },
        ] {
            assert_eq!(
                code(wrong, MeterType::TwoRateThreeColor),
                Err(Code::InvalidArgument)
            );
        }
    }
}
