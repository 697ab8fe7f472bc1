//! The macro that makes both names of a function.

/// Makes `ncclX` and `pncclX`, which run the same body. The body's result becomes that of the call;
/// `line` is the call's line in the trace.
///
/// ```text
/// exported! {
///     /// What it does.
///     fn ncclCommCount, pncclCommCount(line; comm: ncclComm_t, count: *mut c_int) { ... }
/// }
/// ```
macro_rules! exported {
    ($(
        $(#[$note:meta])*
        fn $name:ident, $profiled:ident(
            $line:ident; $($argument:ident: $kind:ty),* $(,)?
        ) $body:block
    )+) => { $(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $crate::abi::ncclResult_t {
            $crate::error::guarded(stringify!($name), |$line| $body)
        }

        #[doc = concat!("As [`", stringify!($name), "`], for a profiler that has its own")]
        /// function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $kind),*) -> $crate::abi::ncclResult_t {
            $crate::error::guarded(stringify!($name), |$line| $body)
        }
    )+ };
}
