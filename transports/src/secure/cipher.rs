//! The ciphers of records: AES-256-GCM where both processors have instructions for it, and
//! ChaCha20-Poly1305 elsewhere.
//!
//! With AES instructions AES-GCM is about eight times faster than ChaCha20-Poly1305. Without them
//! it is slower, and an implementation in plain code may leak its key by its timing.

use super::TAG;
use crate::stream::{Fault, Result};
use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};
use std::fmt;
use zeroize::Zeroizing;

/// Bytes of a key, for every cipher.
pub(super) const KEY: usize = 32;
/// The nonce that makes the next key from a key. No record has it.
const NEXT_KEY_NONCE: u64 = u64::MAX;

/// How the records of a connection are encrypted and authenticated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum CipherSuite {
    /// AES-256 in Galois/counter mode.
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305,
}

impl CipherSuite {
    /// Every suite, the fastest first.
    const ALL: [Self; 2] = [Self::Aes256Gcm, Self::ChaCha20Poly1305];

    /// Returns the suite that two ranks on processors like this one use.
    pub fn of_this_processor() -> Self {
        Self::agreed(Self::supported(), Self::supported()).unwrap_or(Self::ChaCha20Poly1305)
    }

    /// The suites that this processor can use, one bit each.
    pub(super) fn supported() -> u8 {
        let aes = if has_aes() { Self::Aes256Gcm.bit() } else { 0 };
        aes | Self::ChaCha20Poly1305.bit()
    }

    /// The fastest suite that both ends can use; `None` if there is none.
    pub(super) fn agreed(ours: u8, theirs: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| ours & theirs & suite.bit() != 0)
    }

    /// This suite in a set of suites.
    pub(super) fn bit(self) -> u8 {
        match self {
            Self::Aes256Gcm => 1,
            Self::ChaCha20Poly1305 => 2,
        }
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes256Gcm => "AES-256-GCM",
            Self::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        })
    }
}

/// A cipher with its key.
pub(super) enum RecordCipher {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Aes(Box<graviola::aead::AesGcm>),
    ChaCha(Box<ChaCha20Poly1305>),
}

opaque!(RecordCipher, "RecordCipher");

impl RecordCipher {
    pub(super) fn new(suite: CipherSuite, key: &[u8; KEY]) -> Self {
        match suite {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            CipherSuite::Aes256Gcm => Self::Aes(Box::new(graviola::aead::AesGcm::new(key))),
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            CipherSuite::Aes256Gcm => unreachable!("this processor does not offer AES-256-GCM"),
            CipherSuite::ChaCha20Poly1305 => {
                Self::ChaCha(Box::new(ChaCha20Poly1305::new(key.into())))
            }
        }
    }

    /// Encrypts `bytes` in place and returns their tag.
    pub(super) fn seal(&self, number: u64, bytes: &mut [u8]) -> [u8; TAG] {
        match self {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Self::Aes(cipher) => {
                let mut tag = [0; TAG];
                cipher.encrypt(&nonce(number), &[], bytes, &mut tag);
                tag
            }
            Self::ChaCha(cipher) => cipher
                .encrypt_in_place_detached(&nonce(number).into(), &[], bytes)
                .expect("a record is shorter than 256 GiB")
                .into(),
        }
    }

    /// Decrypts `bytes` in place if `tag` proves that they were sealed with `number`. After an
    /// error their contents are unspecified.
    pub(super) fn open(&self, number: u64, bytes: &mut [u8], tag: &[u8; TAG]) -> Result<()> {
        match self {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Self::Aes(cipher) => {
                cipher.decrypt(&nonce(number), &[], bytes, tag).map_err(|_| Fault::Altered)
            }
            Self::ChaCha(cipher) => cipher
                .decrypt_in_place_detached(&nonce(number).into(), &[], bytes, tag.into())
                .map_err(|_| Fault::Altered),
        }
    }

    /// Returns the cipher with the next key, which does not reveal this key. The next key is the
    /// encryption of zeros by this cipher, as in section 4.2 of the Noise specification.
    pub(super) fn next(&self) -> Self {
        let mut key = Zeroizing::new([0; KEY]);
        self.seal(NEXT_KEY_NONCE, key.as_mut_slice());
        Self::new(self.suite(), &key)
    }

    fn suite(&self) -> CipherSuite {
        match self {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Self::Aes(_) => CipherSuite::Aes256Gcm,
            Self::ChaCha(_) => CipherSuite::ChaCha20Poly1305,
        }
    }
}

/// The nonce with this number: four zeros, and the number with its most significant byte first.
fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn has_aes() -> bool {
    graviola::util::is_cpu_supported()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digits: &str) -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(pair).collect()
    }

    fn suites() -> impl Iterator<Item = CipherSuite> {
        let usable = |suite: &CipherSuite| CipherSuite::supported() & suite.bit() != 0;
        CipherSuite::ALL.into_iter().filter(usable)
    }

    /// Test case 14 of "The Galois/Counter Mode of Operation" (McGrew, Viega): the zero key, the
    /// zero nonce, a block of zeros.
    #[test]
    fn aes_256_gcm_is_that_of_its_specification() {
        if !has_aes() {
            return;
        }
        let mut bytes = [0; 16];
        let tag = RecordCipher::new(CipherSuite::Aes256Gcm, &[0; KEY]).seal(0, &mut bytes);
        assert_eq!(bytes.to_vec(), hex("cea7403d4d606b6e074ec5d3baf39d18"));
        assert_eq!(tag.to_vec(), hex("d0d1c8a799996bf0265b98b5d48ab919"));
    }

    #[test]
    fn what_one_end_seals_the_other_end_opens() {
        for suite in suites() {
            let cipher = RecordCipher::new(suite, &[7; KEY]);
            for len in [0, 1, 16, 1000] {
                let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
                let mut bytes = plain.clone();
                let tag = cipher.seal(5, &mut bytes);
                assert!(len < 16 || bytes != plain);
                cipher.open(5, &mut bytes, &tag).unwrap();
                assert_eq!(bytes, plain);
            }
        }
    }

    #[test]
    fn another_number_key_or_bit_is_not_authentic() {
        for suite in suites() {
            let cipher = RecordCipher::new(suite, &[7; KEY]);
            let mut sealed = [1; 40];
            let tag = cipher.seal(5, &mut sealed);
            let opens = |cipher: &RecordCipher, number, change: usize| {
                let mut bytes = sealed;
                let mut tag = tag;
                match change {
                    0..40 => bytes[change] ^= 1,
                    40..56 => tag[change - 40] ^= 0x80,
                    _ => {}
                }
                cipher.open(number, &mut bytes, &tag).is_ok()
            };
            assert!(opens(&cipher, 5, usize::MAX));
            assert!(!opens(&cipher, 6, usize::MAX));
            assert!(!opens(&RecordCipher::new(suite, &[8; KEY]), 5, usize::MAX));
            assert!(!opens(&cipher.next(), 5, usize::MAX));
            assert!((0..56).all(|change| !opens(&cipher, 5, change)));
        }
    }

    #[test]
    fn both_ends_make_the_same_next_key() {
        for suite in suites() {
            let [here, there] = [(); 2].map(|()| RecordCipher::new(suite, &[7; KEY]).next());
            let mut bytes = [3; 20];
            let tag = here.seal(0, &mut bytes);
            there.open(0, &mut bytes, &tag).unwrap();
            assert_eq!(bytes, [3; 20]);
        }
    }

    #[test]
    fn the_fastest_suite_that_both_ends_have_is_used() {
        let both = CipherSuite::Aes256Gcm.bit() | CipherSuite::ChaCha20Poly1305.bit();
        let slow = CipherSuite::ChaCha20Poly1305.bit();
        assert_eq!(CipherSuite::agreed(both, both), Some(CipherSuite::Aes256Gcm));
        assert_eq!(CipherSuite::agreed(both, slow), Some(CipherSuite::ChaCha20Poly1305));
        assert_eq!(CipherSuite::agreed(both, 0), None);
    }
}
