//! AES-256-GCM by the instructions of the processor, as a cipher for Noise. Where there are none, the
//! cipher is that of `snow`, whose time does not depend on the key either.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

/// The implementations of the handshake's pattern.
pub(super) struct Resolver;

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        DefaultResolver.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if matches!(choice, CipherChoice::AESGCM) && graviola::util::is_cpu_supported() {
            return Some(Box::new(fast::AesCipher(graviola::aead::AesGcm::new(&[0; 32]))));
        }
        DefaultResolver.resolve_cipher(choice)
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod fast {
    use crate::secure::TAG;
    use graviola::aead::AesGcm;
    use snow::types::Cipher;

    pub(super) struct AesCipher(pub(super) AesGcm);

    impl Cipher for AesCipher {
        fn name(&self) -> &'static str {
            "AESGCM"
        }

        fn set(&mut self, key: &[u8; 32]) {
            self.0 = AesGcm::new(key);
        }

        fn encrypt(&self, number: u64, data: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
            let (bytes, rest) = out.split_at_mut(plain.len());
            let tag = rest.first_chunk_mut().expect("a tag follows the bytes");
            bytes.copy_from_slice(plain);
            self.0.encrypt(&nonce(number), data, bytes, tag);
            plain.len() + TAG
        }

        fn decrypt(
            &self,
            number: u64,
            data: &[u8],
            sealed: &[u8],
            out: &mut [u8],
        ) -> Result<usize, snow::Error> {
            let (bytes, tag) = sealed.split_last_chunk::<TAG>().ok_or(snow::Error::Decrypt)?;
            let out = &mut out[..bytes.len()];
            out.copy_from_slice(bytes);
            let opened = self.0.decrypt(&nonce(number), data, out, tag);
            opened.map(|()| out.len()).map_err(|_| snow::Error::Decrypt)
        }
    }

    /// The nonce with this number: four zeros, and the number with its most significant byte first.
    fn nonce(number: u64) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(resolver: &dyn CryptoResolver, key: [u8; 32]) -> Box<dyn Cipher> {
        let mut cipher = resolver.resolve_cipher(&CipherChoice::AESGCM).unwrap();
        cipher.set(&key);
        cipher
    }

    fn sealed(cipher: &dyn Cipher, number: u64, plain: &[u8]) -> Vec<u8> {
        let mut out = vec![0; plain.len() + 16];
        assert_eq!(cipher.encrypt(number, b"data", plain, &mut out), out.len());
        out
    }

    /// The same bytes on every processor: hosts of one job may differ.
    #[test]
    fn this_processors_cipher_has_the_bytes_of_the_portable_one() {
        let plain: Vec<u8> = (0..=255).cycle().take(33_000).collect();
        let [mut here, mut there] = [of(&Resolver, [7; 32]), of(&DefaultResolver, [7; 32])];
        for number in [0, 1, 1 << 40] {
            for len in [0, 1, 15, 16, 1000, 33_000] {
                let wire = sealed(&*here, number, &plain[..len]);
                assert_eq!(wire, sealed(&*there, number, &plain[..len]));
                let mut opened = vec![0; len];
                assert_eq!(here.decrypt(number, b"data", &wire, &mut opened), Ok(len));
                assert_eq!(opened, plain[..len]);
            }
            here.rekey();
            there.rekey();
        }
    }

    /// Test case 14 of "The Galois/Counter Mode of Operation" (McGrew, Viega): the zero key, the
    /// zero nonce, a block of zeros.
    #[test]
    fn aes_256_gcm_is_that_of_its_specification() {
        let mut out = [0; 32];
        of(&Resolver, [0; 32]).encrypt(0, &[], &[0; 16], &mut out);
        let digits: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919");
    }

    #[test]
    fn another_number_key_datum_or_bit_is_not_authentic() {
        let cipher = of(&Resolver, [7; 32]);
        let wire = sealed(&*cipher, 5, &[1; 40]);
        let opens = |cipher: &dyn Cipher, number, data: &[u8], wire: &[u8]| {
            cipher.decrypt(number, data, wire, &mut [0; 40]).is_ok()
        };
        assert!(opens(&*cipher, 5, b"data", &wire));
        assert!(!opens(&*cipher, 6, b"data", &wire) && !opens(&*cipher, 5, b"", &wire));
        assert!(!opens(&*of(&Resolver, [8; 32]), 5, b"data", &wire));
        for at in 0..wire.len() {
            let mut altered = wire.clone();
            altered[at] ^= 0x80;
            assert!(!opens(&*cipher, 5, b"data", &altered), "{at}");
        }
    }
}
