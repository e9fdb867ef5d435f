// SPDX-License-Identifier: Apache-2.0
//! Provides the program of the cases: p4c's output for `program/suite.p4`.

use std::sync::LazyLock;

use sluice_p4runtime::p4info;
use sluice_p4runtime::proto::config::v1::{P4Info, Preamble, meter_spec};
use sluice_p4runtime::proto::v1::ForwardingPipelineConfig;
use sluice_p4runtime::proto::v1::forwarding_pipeline_config::Cookie;

const JSON: &[u8] = include_bytes!("../program/build/suite.json");
const P4INFO_TEXT: &str = include_str!("../program/build/suite.p4info.txtpb");

/// The cookie in [`config`].
pub const COOKIE: u64 = 0x51de;

/// Number of the program's port to the controller.
pub const CPU_PORT: u16 = 510;

/// Number of cells of `cells_counter`.
pub const COUNTER_CELLS: i64 = 8;

/// The program's P4Info. p4c does not write the types of meters into it, so this code sets them from
/// annotations.
pub static P4INFO: LazyLock<P4Info> = LazyLock::new(|| {
    let mut info = p4info::from_text(P4INFO_TEXT).expect("the committed P4Info is valid");
    for meter in &mut info.meters {
        let annotations = meter.preamble.iter().flat_map(|p| &p.annotations);
        let kind = annotations.fold(None, |kind, annotation| match annotation.as_str() {
            "@single_rate_three_color" => Some(meter_spec::Type::SingleRateThreeColor),
            "@single_rate_two_color" => Some(meter_spec::Type::SingleRateTwoColor),
            _ => kind,
        });
        if let (Some(kind), Some(spec)) = (kind, meter.spec.as_mut()) {
            spec.set_type(kind);
        }
    }
    info
});

/// Returns the pipeline config.
pub fn config() -> ForwardingPipelineConfig {
    ForwardingPipelineConfig {
        p4info: Some(P4INFO.clone()),
        p4_device_config: JSON.into(),
        cookie: Some(Cookie { cookie: COOKIE }),
    }
}

fn preambles(info: &P4Info) -> impl Iterator<Item = &Preamble> {
    let tables = info.tables.iter().map(|o| &o.preamble);
    tables
        .chain(info.actions.iter().map(|o| &o.preamble))
        .chain(info.action_profiles.iter().map(|o| &o.preamble))
        .chain(info.counters.iter().map(|o| &o.preamble))
        .chain(info.meters.iter().map(|o| &o.preamble))
        .chain(info.registers.iter().map(|o| &o.preamble))
        .chain(info.digests.iter().map(|o| &o.preamble))
        .chain(info.value_sets.iter().map(|o| &o.preamble))
        .flatten()
}

/// Returns the P4Info id of the object with this alias.
///
/// # Panics
/// Panics if the program has no such object, which is a mistake in a case.
pub fn id(alias: &str) -> u32 {
    let found = preambles(&P4INFO).find(|preamble| preamble.alias == alias);
    found
        .unwrap_or_else(|| panic!("suite.p4 has no {alias:?}"))
        .id
}

/// A P4Info id that no object has.
pub const UNKNOWN_ID: u32 = 0x02ff_fff1;
