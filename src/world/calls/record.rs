//! One call as data, which ranks compare.

use serde::{Deserialize, Serialize};

/// A call that all ranks of a group make together, as far as they must agree on it.
///
/// Two calls match if their fingerprints are equal. The words are for error messages.
///
/// ```
/// use maypole::world::calls::CallRecord;
/// let ring = CallRecord::new(1, "all_reduce(8 x f32, sum)").choosing("algorithm", "ring");
/// let tree = CallRecord::new(2, "all_reduce(8 x f32, sum)").choosing("algorithm", "tree");
/// assert_eq!(ring.difference(&tree).as_deref(), Some("algorithm (ring, tree)"));
/// ```
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct CallRecord {
    /// A hash of everything that the ranks must agree on.
    pub fingerprint: u64,
    /// The call in words, such as `all_reduce(8 x f32, sum)`.
    pub call: String,
    /// Name and value of every argument that the ranks must agree on. The first one is the
    /// operation.
    pub arguments: Vec<(String, String)>,
    /// Name and value of everything else that they must agree on, chosen by settings or the tuner.
    pub choices: Vec<(String, String)>,
    /// Bytes of the vector, or of all blocks together.
    pub bytes: u64,
}

impl CallRecord {
    /// Makes the record of `call`, which has this fingerprint, without arguments.
    pub fn new(fingerprint: u64, call: impl Into<String>) -> Self {
        Self { fingerprint, call: call.into(), ..Self::default() }
    }

    /// Adds an argument.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.arguments.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds a choice.
    #[must_use]
    pub fn choosing(mut self, name: &str, value: impl ToString) -> Self {
        self.choices.push((name.to_owned(), value.to_string()));
        self
    }

    /// Bytes of memory that it takes, its words included.
    pub(crate) fn memory(&self) -> usize {
        let pairs = self.arguments.iter().chain(&self.choices);
        let words = pairs.map(|(name, value)| name.capacity() + value.capacity()).sum::<usize>();
        let lists = self.arguments.capacity() + self.choices.capacity();
        size_of::<Self>() + self.call.capacity() + words + lists * size_of::<(String, String)>()
    }

    /// Returns the difference between two calls of one operation, in words: name and both values of
    /// each argument, or of each choice if the arguments are equal. `None` for calls of different
    /// operations, or if no named value differs.
    pub fn difference(&self, other: &Self) -> Option<String> {
        difference([&self.arguments, &self.choices], [&other.arguments, &other.choices])
    }
}

/// The body of [`CallRecord::difference`], on arguments and choices.
pub(super) fn difference(
    [mine, my_choices]: [&[(String, String)]; 2],
    [theirs, their_choices]: [&[(String, String)]; 2],
) -> Option<String> {
    if mine.first() != theirs.first() {
        return None;
    }
    differing(mine, theirs).or_else(|| differing(my_choices, their_choices))
}

/// The names that both lists have with different values.
fn differing(mine: &[(String, String)], theirs: &[(String, String)]) -> Option<String> {
    let other = |name: &str| theirs.iter().find(|it| it.0 == name).map(|(_, value)| value);
    let differing = mine.iter().filter_map(|(name, value)| {
        let other = other(name).filter(|other| *other != value)?;
        Some(format!("{name} ({value}, {other})"))
    });
    let differing: Vec<String> = differing.collect();
    (!differing.is_empty()).then(|| differing.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_tell_the_difference_before_choices_do() {
        let call = |name, count: u32, window: u32| {
            let call = CallRecord::new(1, name).with("call", name).with("count", count);
            call.with("type", "f32").choosing("window", window)
        };
        let difference = |one: CallRecord, other| one.difference(&other);
        assert_eq!(difference(call("scan", 3, 8), call("scan", 3, 8)), None);
        let count = Some("count (3, 4)".to_owned());
        assert_eq!(difference(call("scan", 3, 8), call("scan", 4, 16)), count);
        let window = Some("window (8, 16)".to_owned());
        assert_eq!(difference(call("scan", 3, 8), call("scan", 3, 16)), window);
        assert_eq!(difference(call("scan", 3, 8), call("reduce", 4, 16)), None);
    }
}
