//! The wire format: fields of a number and a value, one after the other.

use super::ProtobufError;

/// A value before its type is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Four or eight bytes; no Kubernetes type uses them.
    Fixed,
}

impl<'a> Wire<'a> {
    pub(super) fn varint(&self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(value) => Ok(*value),
            _ => Err(ProtobufError::Malformed(format!("wrong wireType for field {field}"))),
        }
    }

    pub(super) fn bytes(&self, field: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::Malformed(format!("wrong wireType for field {field}"))),
        }
    }
}

/// Reads fields from a slice; it copies nothing.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The number and value of the next field; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => self.take(8).map(|_| Wire::Fixed)?,
            2 => {
                let len = self.varint()?;
                Wire::Bytes(self.take(usize::try_from(len).map_err(|_| ProtobufError::Truncated)?)?)
            }
            5 => self.take(4).map(|_| Wire::Fixed)?,
            other => return Err(ProtobufError::Malformed(format!("illegal wireType {other}"))),
        };
        match tag >> 3 {
            0 => Err(ProtobufError::Malformed(format!("illegal tag {tag}"))),
            number => Ok(Some((number, wire))),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Seven bits a byte, least first; at most ten bytes.
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(ProtobufError::Malformed("integer overflow".to_owned()))
    }
}
