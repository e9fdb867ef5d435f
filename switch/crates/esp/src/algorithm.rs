// SPDX-License-Identifier: Apache-2.0
//! Defines the algorithms of SAs, and the sizes of their keys, IVs, ICVs and blocks.

use serde::{Deserialize, Serialize};

/// An encryption algorithm together with its integrity algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// AES-128-GCM with a 16-byte ICV (RFC 4106).
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// AES-256-GCM with a 16-byte ICV (RFC 4106).
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7634).
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
    /// AES-128-CBC (RFC 3602) with HMAC-SHA-256-128 (RFC 4868).
    #[serde(rename = "aes-128-cbc-hmac-sha-256-128")]
    Aes128CbcHmacSha256,
    /// AES-256-CBC (RFC 3602) with HMAC-SHA-256-128 (RFC 4868).
    #[serde(rename = "aes-256-cbc-hmac-sha-256-128")]
    Aes256CbcHmacSha256,
    /// No encryption (RFC 2410), HMAC-SHA-256-128.
    #[serde(rename = "null-hmac-sha-256-128")]
    NullHmacSha256,
    /// Neither encryption nor integrity. For benchmarks; refused unless an option allows it.
    #[serde(rename = "null-without-integrity")]
    NullWithoutIntegrity,
}

/// All algorithms.
pub const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::Aes128Gcm,
    Algorithm::Aes256Gcm,
    Algorithm::ChaCha20Poly1305,
    Algorithm::Aes128CbcHmacSha256,
    Algorithm::Aes256CbcHmacSha256,
    Algorithm::NullHmacSha256,
    Algorithm::NullWithoutIntegrity,
];

impl Algorithm {
    /// Returns the length of the encryption key in bytes. The key of an AEAD ends with a salt of 4 bytes, like the
    /// keying material of RFC 4106.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16 + 4,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32 + 4,
            Self::Aes128CbcHmacSha256 => 16,
            Self::Aes256CbcHmacSha256 => 32,
            Self::NullHmacSha256 | Self::NullWithoutIntegrity => 0,
        }
    }

    /// Returns the length of the separate integrity key in bytes; 0 if the algorithm has none.
    pub fn integrity_key_len(self) -> usize {
        match self {
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 | Self::NullHmacSha256 => 32,
            _ => 0,
        }
    }

    /// Returns the length in bytes of the initialization vector in each packet.
    pub fn iv_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm | Self::ChaCha20Poly1305 => 8,
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 16,
            Self::NullHmacSha256 | Self::NullWithoutIntegrity => 0,
        }
    }

    /// Returns the length in bytes of the integrity check value at the end of each packet.
    pub fn icv_len(self) -> usize {
        match self {
            Self::NullWithoutIntegrity => 0,
            _ => 16,
        }
    }

    /// Returns the block size in bytes. Payload and trailer are padded to a multiple of the block size.
    pub fn block(self) -> usize {
        match self {
            Self::Aes128CbcHmacSha256 | Self::Aes256CbcHmacSha256 => 16,
            _ => 4,
        }
    }
}
