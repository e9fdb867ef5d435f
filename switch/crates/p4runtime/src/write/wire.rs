// SPDX-License-Identifier: Apache-2.0
//! Reads encoded protobuf messages in place, without copying or allocating. Used for messages that come in large
//! numbers. Does not support groups, or fields that are out of order: prost decodes such messages. prost also finds the
//! mistake in a malformed message.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A number of up to 64 bits.
    Varint(u64),
    /// Bytes, a string or a message.
    Bytes(&'a [u8]),
}

/// The unread part of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a message from its beginning.
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// Returns the number of unread bytes.
    pub(crate) fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Returns the next field and its number. Returns `None` at the end of the message, and for an encoding that is not
    /// supported.
    #[inline]
    pub(crate) fn field(&mut self) -> Option<(u32, Value<'a>)> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => Some((number, Value::Varint(self.varint()?))),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Some((number, Value::Bytes(bytes)))
            }
            _ => None,
        }
    }

    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        if first < 0x80 {
            return Some(first.into());
        }
        self.long_varint(first)
    }

    fn long_varint(&mut self, first: u8) -> Option<u64> {
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // A number has 64 bits, of which the first nine bytes hold 63. So the tenth byte may have only one bit.
                return (shift < 63 || byte < 2).then_some(value);
            }
        }
        None
    }
}

/// Calls `field` for each field of a message. The fields must be in the order of their numbers, in which clients encode
/// them. Returns `None` if they are not, or if the message is malformed.
#[inline]
pub(crate) fn each<'a>(
    message: &'a [u8],
    mut field: impl FnMut(u32, Value<'a>) -> Option<Occurrence>,
) -> Option<()> {
    let (mut reader, mut least) = (Reader::new(message), 0);
    while reader.remaining() > 0 {
        let (number, value) = reader.field()?;
        if number < least {
            return None;
        }
        least = match field(number, value)? {
            Occurrence::Once => number.saturating_add(1),
            Occurrence::Repeated => number,
        };
    }
    Some(())
}

/// How often a field may occur in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occurrence {
    /// At most once.
    Once,
    /// Any number of times.
    Repeated,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_of_both_kinds() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i'];
        let mut reader = Reader::new(&message);
        assert_eq!(reader.field(), Some((1, Value::Varint(150))));
        assert_eq!(reader.field(), Some((2, Value::Bytes(b"hi"))));
        assert_eq!((reader.remaining(), reader.field()), (0, None));
    }

    #[test]
    fn what_is_cut_off_is_not_understood() {
        for message in [&[0x80][..], &[0x08], &[0x12, 3, 1, 2], &[0x0d, 0, 0, 0, 0]] {
            assert_eq!(Reader::new(message).field(), None, "{message:?}");
        }
    }

    #[test]
    fn fields_twice_or_out_of_order_are_not_understood() {
        let read = |message: &[u8], kind| each(message, |_, _| Some(kind));
        assert_eq!(read(&[0x08, 1, 0x10, 1], Occurrence::Once), Some(()));
        assert_eq!(read(&[0x10, 1, 0x08, 1], Occurrence::Once), None);
        assert_eq!(read(&[0x08, 1, 0x08, 1], Occurrence::Once), None);
        assert_eq!(read(&[0x08, 1, 0x08, 1], Occurrence::Repeated), Some(()));
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_prost_writes_them(value: u64) {
            let mut message = vec![0x08];
            prost::encoding::encode_varint(value, &mut message);
            prop_assert_eq!(Reader::new(&message).field(), Some((1, Value::Varint(value))));
        }

        #[test]
        fn what_is_understood_prost_understands(message: Vec<u8>) {
            let mut reader = Reader::new(&message);
            while let Some((_, Value::Varint(_))) = reader.field() {}
            // There is no expected result. The reader only must not read beyond the message.
            prop_assert!(reader.remaining() <= message.len());
        }
    }
}
