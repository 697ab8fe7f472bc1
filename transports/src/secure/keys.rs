//! How the two ends of a connection exchange the keys of their records.
//!
//! Each end draws a random key for its own records, and sends it to the other end within the
//! handshake's encrypted channel. So every connection has keys of its own, and so has each of its
//! directions. A recorded connection cannot be read by a later owner of the job's key, because the
//! channel's key is derived from the private keys of this one handshake.

use super::cipher::{CipherSuite, KEY};
use super::{Purpose, SecureError};
use crate::random;
use zeroize::Zeroizing;

/// Bytes of a [`KeyOffer`] on the wire.
pub(super) const OFFER: usize = KEY + 1;

/// The keys of both directions of a connection, as one end of it has them.
pub struct RecordKeys {
    pub(super) suite: CipherSuite,
    pub(super) sending: Zeroizing<[u8; KEY]>,
    pub(super) receiving: Zeroizing<[u8; KEY]>,
}

opaque!(RecordKeys, "RecordKeys");

/// One end's announcement of its records: their key, and suites. The initiator names all suites
/// that it can use, the responder the one that will be used.
pub(super) struct KeyOffer {
    key: Zeroizing<[u8; KEY]>,
    suites: u8,
}

impl KeyOffer {
    /// Draws a key, if the connection is for encrypted data.
    ///
    /// # Errors
    /// If the system has no random source.
    pub(super) fn draw(purpose: Purpose) -> Result<Option<Self>, SecureError> {
        if purpose != Purpose::EncryptedData {
            return Ok(None);
        }
        let key = Zeroizing::new(random::bytes()?);
        Ok(Some(Self { key, suites: CipherSuite::supported() }))
    }

    /// The bytes of an offer; none if there is none.
    pub(super) fn encode(offer: Option<&Self>) -> Zeroizing<Vec<u8>> {
        let encode = |offer: &Self| [offer.key.as_slice(), &[offer.suites]].concat();
        Zeroizing::new(offer.map_or_else(Vec::new, encode))
    }

    /// Reads the bytes that [`encode`](Self::encode) made of the other end's offer.
    fn decode(bytes: &[u8]) -> Result<Self, SecureError> {
        let (key, rest) = bytes.split_first_chunk().ok_or(SecureError::UnknownProtocol)?;
        let [suites] = *rest else { return Err(SecureError::UnknownProtocol) };
        Ok(Self { key: Zeroizing::new(*key), suites })
    }

    /// Joins this end's offer with that of the other end. The keys are `None` if neither end makes
    /// an offer. Afterwards this end's offer names the suite that is used.
    ///
    /// # Errors
    /// If one end makes an offer and the other does not, or there is no suite that both can use.
    pub(super) fn join(
        ours: &mut Option<Self>,
        theirs: &[u8],
    ) -> Result<Option<RecordKeys>, SecureError> {
        let Some(ours) = ours else {
            let agreed = theirs.is_empty();
            return if agreed { Ok(None) } else { Err(SecureError::UnknownProtocol) };
        };
        let theirs = Self::decode(theirs)?;
        let suite = CipherSuite::agreed(ours.suites, theirs.suites);
        let suite = suite.ok_or(SecureError::UnknownProtocol)?;
        ours.suites = suite.bit();
        Ok(Some(RecordKeys { suite, sending: ours.key.clone(), receiving: theirs.key }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(suites: u8) -> KeyOffer {
        KeyOffer { suites, ..KeyOffer::draw(Purpose::EncryptedData).unwrap().unwrap() }
    }

    #[test]
    fn two_offers_make_the_keys_of_both_ends() {
        let slow = CipherSuite::ChaCha20Poly1305.bit();
        let mut initiator = Some(offer(CipherSuite::supported()));
        let told = KeyOffer::encode(initiator.as_ref());
        assert_eq!(told.len(), OFFER);
        // The responder's processor has no AES instructions, so it chooses the other suite.
        let mut responder = Some(offer(slow));
        let theirs = KeyOffer::join(&mut responder, &told).unwrap().unwrap();
        let answer = KeyOffer::encode(responder.as_ref());
        assert_eq!(answer[KEY], slow);
        let ours = KeyOffer::join(&mut initiator, &answer).unwrap().unwrap();
        assert_eq!([ours.suite, theirs.suite], [CipherSuite::ChaCha20Poly1305; 2]);
        assert!(ours.sending == theirs.receiving && ours.receiving == theirs.sending);
    }

    #[test]
    fn an_offer_that_only_one_end_makes_is_refused() {
        let join = |mut ours: Option<KeyOffer>, theirs: &[u8]| KeyOffer::join(&mut ours, theirs);
        assert!(join(None, &[]).unwrap().is_none());
        let told = KeyOffer::encode(Some(&offer(3)));
        let short = &told[..KEY];
        let long = [&told[..], &[0]].concat();
        let no_suite = [&told[..KEY], &[0]].concat();
        let unknown_suite = [&told[..KEY], &[4]].concat();
        let refused = [
            join(None, &told),
            join(Some(offer(3)), &[]),
            join(Some(offer(3)), short),
            join(Some(offer(3)), &long),
            join(Some(offer(3)), &no_suite),
            join(Some(offer(3)), &unknown_suite),
        ];
        for outcome in refused {
            assert!(matches!(outcome, Err(SecureError::UnknownProtocol)), "{outcome:?}");
        }
    }
}
