//! Shorthand for what AVX2 and AVX-512 spell alike.

/// IEEE minimum and maximum from instructions that return the second operand if it equals the first
/// (as zeros of unlike sign do) or if either is a NaN. Both orders are asked, and differ in those
/// cases only: then OR keeps a minus sign and any NaN, AND keeps a plus sign but may lose a NaN,
/// which `$nan_mask` (all ones where either is one) restores.
macro_rules! extremes {
    ($read:ident $write:ident $minimum:ident: $min:ident, $maximum:ident: $max:ident, $nan_mask:expr) => {
        #[inline(always)]
        unsafe fn $minimum(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe {
                let (a, b) = ($read(self), $read(other));
                $write($min(a, b)).or($write($min(b, a)))
            }
        }
        #[inline(always)]
        unsafe fn $maximum(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe {
                let (a, b) = ($read(self), $read(other));
                $write($max(a, b)).and($write($max(b, a))).or($nan_mask(a, b))
            }
        }
    };
}

/// Methods of one register.
macro_rules! unary {
    ($($name:ident: $intrinsic:ident::<$bits:literal>,)*) => {$(
        #[inline(always)]
        unsafe fn $name(self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { $intrinsic::<$bits>(self) }
        }
    )*};
}

/// Two registers of 32-bit lanes from the 16-bit lanes of one, and back, within each 128-bit block:
/// so the two hold the lower and the upper halves of the blocks, which the packing instruction
/// expects.
macro_rules! halves {
    ($unpack_low:ident $unpack_high:ident $pack:ident $zero:ident) => {
        #[inline(always)]
        unsafe fn widen_upper_16(self) -> [Self; 2] {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { [$unpack_low($zero(), self), $unpack_high($zero(), self)] }
        }
        #[inline(always)]
        unsafe fn narrow_lower_16([low, high]: [Self; 2]) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { $pack(low, high) }
        }
    };
}

pub(super) use {extremes, halves, unary};
