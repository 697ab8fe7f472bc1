//! Macros for methods of one intrinsic each.

/// Methods of two registers of bits.
macro_rules! binary {
    ($($name:ident: $intrinsic:ident,)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { $intrinsic(self, other) }
        }
    )*};
}

/// Methods of two registers of lanes: `$read` turns bits into lanes, `$write` turns lanes into
/// bits.
macro_rules! lanes {
    ($read:ident $write:ident; $($name:ident: $intrinsic:ident,)*) => {$(
        #[inline(always)]
        unsafe fn $name(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { $write($intrinsic($read(self), $read(other))) }
        }
    )*};
}

pub(super) use {binary, lanes};
