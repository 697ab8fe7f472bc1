//! The macro that mounts the contract for one kind of stream.

/// Mounts the contract for one kind of stream.
macro_rules! mount {
    ($(#[$attribute:meta])* $name:ident, largest: $largest:expr, $pair:expr) => {
        mount!($(#[$attribute])* $name, largest: $largest, narrow: false, $pair);
    };
    (
        $(#[$attribute:meta])* $name:ident, largest: $largest:expr, narrow: $narrow:expr,
        $pair:expr
    ) => {
        $(#[$attribute])*
        #[path = "."]
        mod $name {
            const LARGEST: usize = $largest;
            const NARROW: bool = $narrow;

            fn pair() -> (impl StreamEnd, impl StreamEnd) {
                $pair
            }

            use crate::drive::StreamEnd;
            #[path = "contract/stream.rs"]
            mod contract;
        }
    };
}
