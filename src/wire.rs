//! Plain data as the bytes that ranks send one another.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The bytes of `message`.
///
/// # Panics
/// If `message` is not plain data: a map of unknown length, or a type whose serialization fails.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("messages are plain data")
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// What is wrong with `bytes`, in words: they are no such message, or others follow it.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(format!("{} of its {} bytes are left over", rest.len(), bytes.len())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_are_read_back(number: Option<u64>, text: String) {
            let message = (number, text);
            prop_assert_eq!(decode(&encode(&message)), Ok(message));
        }

        #[test]
        fn other_bytes_are_an_error_or_a_message(bytes: Vec<u8>) {
            if let Ok(message) = decode::<(u64, Option<String>)>(&bytes) {
                prop_assert_eq!(decode(&encode(&message)), Ok(message));
            }
        }
    }

    #[test]
    fn bytes_that_follow_a_message_are_an_error() {
        let why = decode::<u8>(&[7, 8, 9]).unwrap_err();
        assert_eq!(why, "2 of its 3 bytes are left over");
    }
}
