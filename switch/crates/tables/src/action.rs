// SPDX-License-Identifier: Apache-2.0
//! Actions with parameters, in the form that engines read.

use sluice_program::{ActionId, Program};

use crate::error::{Result, invalid};
use crate::model::{ActionCall, Value};
use crate::value;

/// An action with its parameters, in the form that engines read. Owns the parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionEntry {
    /// The action.
    pub action: ActionId,
    /// Parameter words; see [`sluice_program::ParamSlot`].
    pub params: Box<[u64]>,
}

/// A borrowed [`ActionEntry`], as a lookup returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionRef<'a> {
    /// The action.
    pub action: ActionId,
    /// Parameter words; see [`sluice_program::ParamSlot`].
    pub params: &'a [u64],
}

impl ActionEntry {
    /// Returns the action and its parameters as a reference.
    #[inline]
    pub fn as_ref(&self) -> ActionRef<'_> {
        ActionRef {
            action: self.action,
            params: &self.params,
        }
    }

    /// Checks an action call and packs its parameters into words.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong number of parameters, `OutOfRange` for a bad value.
    pub(crate) fn compile(program: &Program, id: ActionId, params: &[Value]) -> Result<Self> {
        let action = program.action(id);
        if params.len() != action.params.len() {
            return invalid(format!(
                "action {} has {} parameters, not {}",
                action.name,
                action.params.len(),
                params.len()
            ));
        }
        let mut words = Vec::with_capacity(action.param_words);
        for (param, value) in action.params.iter().zip(params) {
            let what = format_args!("action {}, parameter {}", action.name, param.name);
            value::append_words(&mut words, value, param.slot.width, &what)?;
        }
        Ok(Self {
            action: id,
            params: words.into_boxed_slice(),
        })
    }

    /// Converts the action call to the control plane's form.
    pub(crate) fn call(&self, program: &Program) -> ActionCall {
        let action = program.action(self.action);
        let params = action
            .params
            .iter()
            .map(|param| {
                let first = usize::from(param.slot.word);
                value::from_words(&self.params[first..first + param.slot.words()])
            })
            .collect();
        ActionCall {
            action: self.action,
            params,
        }
    }
}
