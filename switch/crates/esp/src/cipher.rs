// SPDX-License-Identifier: Apache-2.0
//! Encrypts and decrypts ESP packets in place. A packet consists of header, IV, payload with trailer, and ICV (RFC
//! 4303, 2).
//!
//! An AEAD's IV is the 64-bit sequence number. Without ESN, its upper half is zero. Sequence numbers are unique, which
//! [`crate::reservation`] ensures, so nonces are unique too. The IV of AES-CBC is random.

use std::ops::Range;

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use crate::aead::{Aead, NONCE, TAG};
use crate::algorithm::Algorithm;
use crate::counters::Drop;
use crate::key::Key;

/// Bytes of the ESP header: SPI and sequence number.
pub const HEADER: usize = 8;
/// Bytes of pad length and next header.
pub const TRAILER: usize = 2;

const SALT: usize = 4;
const REFUSED: &str = "the crypto library refuses the key";
const CBC_BLOCK: usize = 16;

/// An algorithm with its keys. The library erases the keys on drop.
pub struct Cipher {
    algorithm: Algorithm,
    /// Whether sequence numbers have 64 bits.
    esn: bool,
    keys: Keys,
}

enum Keys {
    Aead { key: Aead, salt: [u8; SALT] },
    Cbc(Box<CbcKeys>),
    Integrity(Box<hmac::Key>),
    Nothing,
}

struct CbcKeys {
    encrypt: EncryptingKey,
    decrypt: DecryptingKey,
    integrity: hmac::Key,
}

impl Cipher {
    /// Creates a cipher from keys of the algorithm's lengths.
    ///
    /// # Errors
    /// Describes the wrong length.
    pub fn new(
        algorithm: Algorithm,
        key: &Key,
        integrity: &Key,
        esn: bool,
    ) -> Result<Self, String> {
        for (name, key, expected) in [
            ("key", key, algorithm.key_len()),
            ("integrity_key", integrity, algorithm.integrity_key_len()),
        ] {
            if key.bytes().len() != expected {
                let found = key.bytes().len();
                return Err(format!(
                    "{name} has {found} bytes; the algorithm needs {expected}"
                ));
            }
        }
        let refused = |_| REFUSED.to_owned();
        let (bytes, hmac_key) = (key.bytes(), integrity.bytes());
        let keys = match algorithm {
            Algorithm::Aes128Gcm | Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => {
                let (secret, last) = bytes.split_at(bytes.len() - SALT);
                let mut salt = [0; SALT];
                salt.copy_from_slice(last);
                let key = Aead::new(algorithm, secret).ok_or(REFUSED)?;
                Keys::Aead { key, salt }
            }
            Algorithm::Aes128CbcHmacSha256 | Algorithm::Aes256CbcHmacSha256 => {
                let aes = match algorithm {
                    Algorithm::Aes128CbcHmacSha256 => &AES_128,
                    _ => &AES_256,
                };
                let unbound = || UnboundCipherKey::new(aes, bytes).map_err(refused);
                Keys::Cbc(Box::new(CbcKeys {
                    encrypt: EncryptingKey::cbc(unbound()?).map_err(refused)?,
                    decrypt: DecryptingKey::cbc(unbound()?).map_err(refused)?,
                    integrity: hmac::Key::new(hmac::HMAC_SHA256, hmac_key),
                }))
            }
            Algorithm::NullHmacSha256 => {
                Keys::Integrity(Box::new(hmac::Key::new(hmac::HMAC_SHA256, hmac_key)))
            }
            Algorithm::NullWithoutIntegrity => Keys::Nothing,
        };
        Ok(Self {
            algorithm,
            esn,
            keys,
        })
    }

    /// Prefetches the keys of an AEAD.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Keys::Aead { key, .. } = &self.keys {
            key.prefetch();
        }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Encrypts a packet whose header, payload and trailer are in place. Writes IV and ICV. The caller must use each
    /// sequence number only once.
    ///
    /// # Errors
    /// A failure of the library, as a drop. The caller must not send the packet then.
    pub fn seal(&mut self, sequence: u64, packet: &mut [u8]) -> Result<(), Drop> {
        let failed = |_| Drop::EncryptionFailed;
        let (iv_len, icv_len) = (self.algorithm.iv_len(), self.algorithm.icv_len());
        let end = packet
            .len()
            .checked_sub(icv_len)
            .ok_or(Drop::EncryptionFailed)?;
        let (clear, icv) = packet.split_at_mut(end);
        if clear.len() < HEADER + iv_len {
            return Err(Drop::EncryptionFailed);
        }
        let esn = self.esn;
        match &mut self.keys {
            Keys::Aead { key, salt } => {
                let (header, rest) = clear.split_at_mut(HEADER);
                let (iv, text) = rest.split_at_mut(iv_len);
                iv.copy_from_slice(&sequence.to_be_bytes());
                let (aad, length) = aad(esn, header, sequence);
                let icv: &mut [u8; TAG] = icv.try_into().map_err(|_| Drop::EncryptionFailed)?;
                key.seal(&nonce(salt, sequence), &aad[..length], text, icv)
                    .map_err(|_| Drop::EncryptionFailed)
            }
            Keys::Cbc(keys) => {
                let (iv, text) = clear[HEADER..].split_at_mut(iv_len);
                SystemRandom::new().fill(iv).map_err(failed)?;
                let context = EncryptionContext::Iv128(cbc_iv(iv));
                keys.encrypt
                    .less_safe_encrypt(text, context)
                    .map_err(failed)?;
                icv.copy_from_slice(
                    &tag(&keys.integrity, esn, clear, sequence).as_ref()[..icv_len],
                );
                Ok(())
            }
            Keys::Integrity(integrity) => {
                icv.copy_from_slice(&tag(integrity, esn, clear, sequence).as_ref()[..icv_len]);
                Ok(())
            }
            Keys::Nothing => Ok(()),
        }
    }

    /// Checks and decrypts a packet. Returns the range of payload and trailer. `sequence` is the full sequence number;
    /// the ESP header contains its lower half.
    ///
    /// # Errors
    /// [`Drop::EspLength`] or [`Drop::IntegrityFailed`]. The contents of the packet are undefined then.
    pub fn open(&mut self, sequence: u64, packet: &mut [u8]) -> Result<Range<usize>, Drop> {
        let (iv_len, icv_len) = (self.algorithm.iv_len(), self.algorithm.icv_len());
        let text = HEADER + iv_len;
        let end = packet.len().checked_sub(icv_len).ok_or(Drop::EspLength)?;
        if end < text + TRAILER || !(end - text).is_multiple_of(self.algorithm.block()) {
            return Err(Drop::EspLength);
        }
        let failed = |_| Drop::IntegrityFailed;
        let esn = self.esn;
        match &mut self.keys {
            Keys::Aead { key, salt } => {
                let (header, rest) = packet.split_at_mut(HEADER);
                let (iv, rest) = rest.split_at_mut(iv_len);
                let (text, icv) = rest.split_at_mut(end - HEADER - iv_len);
                let (aad, length) = aad(esn, header, sequence);
                let mut number = [0; 8];
                number.copy_from_slice(iv);
                let nonce = nonce(salt, u64::from_be_bytes(number));
                key.open(&nonce, &aad[..length], text, icv)
                    .map_err(|_| Drop::IntegrityFailed)?;
            }
            Keys::Cbc(keys) => {
                check(&keys.integrity, esn, packet, end, sequence)?;
                let (iv, rest) = packet[HEADER..].split_at_mut(iv_len);
                let context = DecryptionContext::Iv128(cbc_iv(iv));
                keys.decrypt
                    .decrypt(&mut rest[..end - text], context)
                    .map_err(failed)?;
            }
            Keys::Integrity(integrity) => check(integrity, esn, packet, end, sequence)?,
            Keys::Nothing => {}
        }
        Ok(text..end)
    }
}

/// Returns the additional authenticated data: SPI and sequence number. With ESN, the sequence number has 64 bits (RFC
/// 4106, 5).
#[inline]
fn aad(esn: bool, header: &[u8], sequence: u64) -> ([u8; 12], usize) {
    let mut aad = [0; 12];
    if esn {
        aad[..4].copy_from_slice(&header[..4]);
        aad[4..].copy_from_slice(&sequence.to_be_bytes());
        return (aad, 12);
    }
    aad[..8].copy_from_slice(&header[..8]);
    (aad, 8)
}

/// Returns the HMAC of a packet up to its ICV. With ESN, the HMAC also covers the upper half of the sequence number
/// (RFC 4303, 2.2.1).
fn tag(key: &hmac::Key, esn: bool, packet: &[u8], sequence: u64) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(packet);
    if esn {
        context.update(&((sequence >> 32) as u32).to_be_bytes());
    }
    context.sign()
}

fn check(key: &hmac::Key, esn: bool, packet: &[u8], end: usize, sequence: u64) -> Result<(), Drop> {
    let (body, icv) = packet.split_at(end);
    let tag = tag(key, esn, body, sequence);
    let expected = tag.as_ref().get(..icv.len()).ok_or(Drop::EspLength)?;
    verify_slices_are_equal(expected, icv).map_err(|_| Drop::IntegrityFailed)
}

fn nonce(salt: &[u8; SALT], iv: u64) -> [u8; NONCE] {
    let mut nonce = [0; NONCE];
    nonce[..SALT].copy_from_slice(salt);
    nonce[SALT..].copy_from_slice(&iv.to_be_bytes());
    nonce
}

fn cbc_iv(iv: &[u8]) -> FixedLength<CBC_BLOCK> {
    let mut bytes = [0; CBC_BLOCK];
    bytes.copy_from_slice(iv);
    FixedLength::from(bytes)
}
