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

/// Functions that fill all lanes with one number.
macro_rules! splat {
    ($($name:ident($lane:ty): |$value:ident| $make:expr,)*) => {$(
        #[inline(always)]
        unsafe fn $name($value: $lane) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { $make }
        }
    )*};
}

/// Implements `Register` by a load and a store that need no alignment.
macro_rules! register {
    ($register:ty: $load:ident $store:ident) => {
        impl Register for $register {
            const BYTES: usize = size_of::<Self>();

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the caller is responsible for the bytes; no alignment is needed.
                unsafe { $load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the caller is responsible for the bytes; no alignment is needed.
                unsafe { $store(to.cast(), self) }
            }
        }
    };
}

pub(super) use {binary, lanes, register, splat};
