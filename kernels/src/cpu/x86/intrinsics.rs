//! Macros for methods that AVX2 and AVX-512 express alike.

/// IEEE 754-2019 minimum and maximum, made of instructions that return the second operand if the
/// two are equal (as +0 and -0 are) or if either is a NaN. The instruction runs in both orders of
/// the operands; the results differ in these cases only. OR of the two keeps a minus sign and any
/// NaN. AND keeps a plus sign but may lose a NaN, which `$nan_mask` (all ones where either operand
/// is a NaN) restores.
macro_rules! extremes {
    ($read:ident $write:ident
        $minimum:ident: $min:ident, $maximum:ident: $max:ident, $nan_mask:expr
    ) => {
        #[inline(always)]
        unsafe fn $minimum(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe {
                let a = $read(self);
                let b = $read(other);
                $write($min(a, b)).or($write($min(b, a)))
            }
        }
        #[inline(always)]
        unsafe fn $maximum(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe {
                let a = $read(self);
                let b = $read(other);
                $write($max(a, b)).and($write($max(b, a))).or($nan_mask(a, b))
            }
        }
    };
}

/// Methods of one register and a constant shift count.
macro_rules! unary {
    ($($name:ident: $intrinsic:ident::<$bits:literal>,)*) => {$(
        #[inline(always)]
        unsafe fn $name(self) -> Self {
            // SAFETY: the caller's CPU has the instruction set.
            unsafe { $intrinsic::<$bits>(self) }
        }
    )*};
}

/// Widens the 16-bit lanes of one register to the 32-bit lanes of two, and narrows them back. The
/// instructions work within blocks of 128 bits: the first result holds the lower halves of all
/// blocks, the second one the upper halves, and the packing instruction undoes that order.
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
