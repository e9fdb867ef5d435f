// SPDX-License-Identifier: Apache-2.0
//! AEAD contexts of AWS-LC. Its Rust interface hides where a context lies; here it is known, so that its cache lines can
//! be prefetched before they are needed.

use std::ffi::c_int;

use aws_lc_sys as sys;
use zeroize::Zeroize;

use crate::algorithm::Algorithm;
use crate::prefetch::prefetch;

/// Bytes of a nonce.
pub(crate) const NONCE: usize = 12;
/// Bytes of a tag.
pub(crate) const TAG: usize = 16;

/// A context with expanded keys. It is made where it stays, and erased when it is dropped.
pub(crate) struct Aead(Box<Context>);

/// At the beginning of a cache line.
#[repr(C, align(64))]
struct Context(sys::EVP_AEAD_CTX);

// SAFETY: the context is this object's own, and AWS-LC binds it to no thread.
unsafe impl Send for Aead {}
// SAFETY: sealing and opening only read it.
unsafe impl Sync for Aead {}

/// The library refuses: a wrong length, or a tag that does not hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused;

impl Aead {
    /// Expands a key. None if the algorithm is no AEAD, or the library refuses the key.
    pub(crate) fn new(algorithm: Algorithm, key: &[u8]) -> Option<Self> {
        aws_lc_rs::init();
        // SAFETY: these return pointers to constants.
        let aead = unsafe {
            match algorithm {
                Algorithm::Aes128Gcm => sys::EVP_aead_aes_128_gcm(),
                Algorithm::Aes256Gcm => sys::EVP_aead_aes_256_gcm(),
                Algorithm::ChaCha20Poly1305 => sys::EVP_aead_chacha20_poly1305(),
                _ => return None,
            }
        };
        // SAFETY: a context of zeros is what EVP_AEAD_CTX_zero makes.
        let mut context = Self(unsafe { Box::<Context>::new_zeroed().assume_init() });
        // SAFETY: the context is zeroed, and the key has the length that is given with it.
        let done = unsafe {
            sys::EVP_AEAD_CTX_init(
                &mut context.0.0,
                aead,
                key.as_ptr(),
                key.len(),
                TAG,
                std::ptr::null_mut(),
            )
        };
        succeeded(done).ok().map(|()| context)
    }

    /// Encrypts text in place, and writes the tag.
    #[inline]
    pub(crate) fn seal(
        &self,
        nonce: &[u8; NONCE],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG],
    ) -> Result<(), Refused> {
        let mut tag_length = 0;
        // SAFETY: each pointer goes with its length; input and output are the same bytes, which the library allows.
        let done = unsafe {
            sys::EVP_AEAD_CTX_seal_scatter(
                &self.0.0,
                text.as_mut_ptr(),
                tag.as_mut_ptr(),
                &mut tag_length,
                TAG,
                nonce.as_ptr(),
                NONCE,
                text.as_ptr(),
                text.len(),
                std::ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        succeeded(done)
    }

    /// Checks the tag and decrypts text in place. The comparison takes the same time whatever the tag is.
    #[inline]
    pub(crate) fn open(
        &self,
        nonce: &[u8; NONCE],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8],
    ) -> Result<(), Refused> {
        // SAFETY: as in `seal`.
        let done = unsafe {
            sys::EVP_AEAD_CTX_open_gather(
                &self.0.0,
                text.as_mut_ptr(),
                nonce.as_ptr(),
                NONCE,
                text.as_ptr(),
                text.len(),
                tag.as_ptr(),
                tag.len(),
                aad.as_ptr(),
                aad.len(),
            )
        };
        succeeded(done)
    }

    /// Prefetches the context.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&*self.0);
    }
}

impl Drop for Aead {
    fn drop(&mut self) {
        // SAFETY: the context was zeroed or initialized; its bytes are this object's own, and nothing reads them later.
        unsafe {
            sys::EVP_AEAD_CTX_cleanup(&mut self.0.0);
            let bytes: *mut Context = &mut *self.0;
            let bytes = std::slice::from_raw_parts_mut(bytes.cast::<u8>(), size_of::<Context>());
            bytes.zeroize();
        }
    }
}

fn succeeded(done: c_int) -> Result<(), Refused> {
    if done == 1 { Ok(()) } else { Err(Refused) }
}
