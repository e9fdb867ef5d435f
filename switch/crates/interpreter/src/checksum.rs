// SPDX-License-Identifier: Apache-2.0
//! Computes the program's named calculations. Verifies checksums after parsing, and updates checksums before deparsing.

use sluice_engine::number::Number;
use sluice_engine::{Trace, calculation};
use sluice_program::{CalculationId, Checksum};

use crate::machine::Machine;

impl<T: Trace> Machine<'_, T> {
    /// Computes a named calculation.
    pub(crate) fn calculate(&mut self, id: CalculationId) -> u64 {
        calculation::calculate(
            self.program,
            (self.packet, self.context.input),
            self.program.calculation(id),
            &mut self.worker.hash_input,
            &mut self.worker.random,
        )
    }

    /// Verifies all checksums that the program verifies. Returns whether all of them are right.
    pub(crate) fn verify_checksums(&mut self) -> bool {
        let program = self.program;
        let mut right = true;
        for checksum in program.checksums.iter().filter(|checksum| checksum.verify) {
            if self.packet.phv.is_valid(checksum.header) && self.applies(checksum) {
                let computed = i128::from(self.calculate(checksum.calculation));
                right &= i128::load(&self.packet.phv.bytes, checksum.target) == computed;
            }
        }
        right
    }

    /// Computes and writes all checksums that the program updates.
    pub(crate) fn update_checksums(&mut self) {
        let program = self.program;
        for checksum in program.checksums.iter().filter(|checksum| checksum.update) {
            if self.applies(checksum) {
                let computed = i128::from(self.calculate(checksum.calculation));
                computed.store(&mut self.packet.phv.bytes, checksum.target);
            }
        }
    }

    fn applies(&self, checksum: &Checksum) -> bool {
        checksum
            .condition
            .as_ref()
            .is_none_or(|condition| self.bool(condition, &[]))
    }
}
