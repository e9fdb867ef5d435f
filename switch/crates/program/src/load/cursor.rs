// SPDX-License-Identifier: Apache-2.0
//! Defines a cursor: a JSON value together with the path to it. The path lets every error name its location.

use std::rc::Rc;
use std::sync::Arc;

use num_bigint::{BigInt, Sign};
use num_traits::Num;
use serde_json::Value;

use crate::error::{LoadError, SourceInfo};

pub(super) type Result<T> = std::result::Result<T, LoadError>;

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

struct Trail<'a> {
    parent: Option<Rc<Trail<'a>>>,
    step: Option<Step<'a>>,
    value: &'a Value,
}

/// A JSON value, and the path to it.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    value: &'a Value,
    trail: Rc<Trail<'a>>,
}

impl<'a> Cursor<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Self {
            value,
            trail: Rc::new(Trail {
                parent: None,
                step: None,
                value,
            }),
        }
    }

    fn child(&self, step: Step<'a>, value: &'a Value) -> Self {
        let trail = Trail {
            parent: Some(Rc::clone(&self.trail)),
            step: Some(step),
            value,
        };
        Self {
            value,
            trail: Rc::new(trail),
        }
    }

    /// Returns an error located at this position.
    pub(super) fn error(&self, message: impl Into<String>) -> LoadError {
        LoadError::new(message.into(), self.path(), self.source())
    }

    /// Returns an error about a feature that this switch does not support.
    pub(super) fn unsupported(&self, what: impl AsRef<str>) -> LoadError {
        self.error(format!("{} is not supported by this switch", what.as_ref()))
    }

    fn path(&self) -> String {
        let mut steps = Vec::new();
        let mut trail = Some(&self.trail);
        while let Some(here) = trail {
            steps.push(here.step.as_ref());
            trail = here.parent.as_ref();
        }
        let mut path = String::new();
        for step in steps.into_iter().rev().flatten() {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                Step::Key(key) => {
                    path.push('.');
                    path.push_str(key);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// Returns the `source_info` of this value, or else of the nearest value around it.
    pub(super) fn source(&self) -> Option<SourceInfo> {
        let mut trail = Some(&self.trail);
        while let Some(here) = trail {
            if let Some(info) = here
                .value
                .get("source_info")
                .filter(|info| info.is_object())
            {
                let text = |key: &str| Arc::from(info[key].as_str().unwrap_or_default());
                let number = |key: &str| info[key].as_u64().unwrap_or(0) as u32;
                return Some(SourceInfo {
                    file: text("filename"),
                    line: number("line"),
                    column: number("column"),
                    fragment: text("source_fragment"),
                });
            }
            trail = here.parent.as_ref();
        }
        None
    }

    /// Returns a member of this object, or `None` if it is absent or null.
    pub(super) fn get(&self, key: &'a str) -> Option<Cursor<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(self.child(Step::Key(key), value))
    }

    /// Returns a member of this object, or an error if the member is absent.
    pub(super) fn at(&self, key: &'a str) -> Result<Cursor<'a>> {
        self.get(key)
            .ok_or_else(|| self.error(format!("\"{key}\" is missing")))
    }

    /// Returns an element of this array, or an error if the element is absent.
    pub(super) fn nth(&self, index: usize) -> Result<Cursor<'a>> {
        let value = self.value.get(index).ok_or_else(|| {
            self.error(format!(
                "an array of at least {} elements is expected",
                index + 1
            ))
        })?;
        Ok(self.child(Step::Index(index), value))
    }

    /// Returns the elements of this array.
    pub(super) fn items(&self) -> Result<Vec<Cursor<'a>>> {
        let items = self
            .value
            .as_array()
            .ok_or_else(|| self.error("an array is expected"))?;
        Ok(items
            .iter()
            .enumerate()
            .map(|(index, value)| self.child(Step::Index(index), value))
            .collect())
    }

    /// Returns the elements of this array. Accepts `{}` as an empty array, because p4c sometimes writes one in
    /// this way.
    pub(super) fn items_or_nothing(&self) -> Result<Vec<Cursor<'a>>> {
        match self.value.as_object() {
            Some(object) if object.is_empty() => Ok(Vec::new()),
            _ => self.items(),
        }
    }

    /// Returns the elements of a member that is an array. An absent member has no elements.
    pub(super) fn list(&self, key: &'a str) -> Result<Vec<Cursor<'a>>> {
        self.get(key)
            .map_or_else(|| Ok(Vec::new()), |member| member.items())
    }

    /// Returns the members of this object.
    pub(super) fn members(&self) -> Result<Vec<(&'a str, Cursor<'a>)>> {
        let members = self
            .value
            .as_object()
            .ok_or_else(|| self.error("an object is expected"))?;
        Ok(members
            .iter()
            .map(|(key, value)| (key.as_str(), self.child(Step::Key(key), value)))
            .collect())
    }

    pub(super) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    pub(super) fn str(&self) -> Result<&'a str> {
        self.value
            .as_str()
            .ok_or_else(|| self.error("a string is expected"))
    }

    pub(super) fn bool(&self) -> Result<bool> {
        self.value
            .as_bool()
            .ok_or_else(|| self.error("true or false is expected"))
    }

    /// Returns a member that is a boolean, or false if the member is absent.
    pub(super) fn flag(&self, key: &'a str) -> Result<bool> {
        self.get(key).map_or(Ok(false), |member| member.bool())
    }

    pub(super) fn u32(&self) -> Result<u32> {
        self.value
            .as_u64()
            .and_then(|value| u32::try_from(value).ok())
            .ok_or_else(|| self.error("a non-negative integer is expected"))
    }

    pub(super) fn usize(&self) -> Result<usize> {
        self.u32().map(|value| value as usize)
    }

    /// Reads a width in bits. The width must be at least 1 and must not exceed the limit of this switch.
    pub(super) fn width(&self) -> Result<u16> {
        match self.u32()? {
            0 => Err(self.error("a width of 0 bits makes no sense here")),
            width if width <= crate::layout::MAX_FIELD_BITS => Ok(width as u16),
            width => Err(self.unsupported(format!("a field of {width} bits"))),
        }
    }

    pub(super) fn name(&self) -> Result<String> {
        self.at("name")?.str().map(str::to_owned)
    }

    /// Reads a hexadecimal integer such as `0x0a` or `-0x1`.
    pub(super) fn integer(&self) -> Result<BigInt> {
        let text = self.str()?;
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        let bad = || self.error(format!("\"{text}\" is not a hexadecimal number"));
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let value = BigInt::from_str_radix(digits, 16).map_err(|_| bad())?;
        Ok(if negative { -value } else { value })
    }

    /// Reads a non-negative hexadecimal integer below 2^`width`. Returns the integer as (width + 7) / 8 big-endian
    /// bytes.
    pub(super) fn hex_bits(&self, width: u16) -> Result<Vec<u8>> {
        if self.integer()?.bits() > u64::from(width) {
            return Err(self.error(format!("the number does not fit {width} bits")));
        }
        self.hex_bytes(usize::from(width).div_ceil(8))
    }

    /// Reads a non-negative hexadecimal integer. Returns exactly `bytes` big-endian bytes.
    pub(super) fn hex_bytes(&self, bytes: usize) -> Result<Vec<u8>> {
        let value = self.integer()?;
        if value.sign() == Sign::Minus {
            return Err(self.error("a non-negative number is expected"));
        }
        let digits = value.to_bytes_be().1;
        let digits = if value.sign() == Sign::NoSign {
            &[][..]
        } else {
            &digits[..]
        };
        if digits.len() > bytes {
            return Err(self.error(format!("the number does not fit {bytes} bytes")));
        }
        let mut padded = vec![0; bytes - digits.len()];
        padded.extend_from_slice(digits);
        Ok(padded)
    }
}
