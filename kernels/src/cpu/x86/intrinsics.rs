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

/// Implements `Vector` for a register by the instructions that every width has, in rows, and by the
/// methods after them.
macro_rules! vector {
    ($register:ty;
        bits: $and:ident $or:ident $xor:ident;
        add: $add_8:ident $add_16:ident $add_32:ident $add_64:ident;
        mul: $mul_16:ident $mul_32:ident;
        min: $min_i8:ident $min_i16:ident $min_i32:ident
            $min_u8:ident $min_u16:ident $min_u32:ident;
        max: $max_i8:ident $max_i16:ident $max_i32:ident
            $max_u8:ident $max_u16:ident $max_u32:ident;
        shift: $up_16:ident $down_16:ident $up_32:ident $down_32:ident;
        f32: $read_f32:ident $write_f32:ident
            $add_f32:ident $mul_f32:ident $div_f32:ident $min_f32:ident $max_f32:ident;
        f64: $read_f64:ident $write_f64:ident
            $add_f64:ident $mul_f64:ident $div_f64:ident $min_f64:ident $max_f64:ident;
        nan: $nan_f32:expr, $nan_f64:expr;
        $($other:tt)*
    ) => {
        impl Register for $register {}

        impl Vector for $register {
            binary! {
                and: $and,
                or: $or,
                xor: $xor,
                add_8: $add_8,
                add_16: $add_16,
                add_32: $add_32,
                add_64: $add_64,
                mul_16: $mul_16,
                mul_32: $mul_32,
                min_i8: $min_i8,
                min_i16: $min_i16,
                min_i32: $min_i32,
                min_u8: $min_u8,
                min_u16: $min_u16,
                min_u32: $min_u32,
                max_i8: $max_i8,
                max_i16: $max_i16,
                max_i32: $max_i32,
                max_u8: $max_u8,
                max_u16: $max_u16,
                max_u32: $max_u32,
            }
            lanes! { $read_f32 $write_f32; add_f32: $add_f32, mul_f32: $mul_f32, div_f32: $div_f32, }
            lanes! { $read_f64 $write_f64; add_f64: $add_f64, mul_f64: $mul_f64, div_f64: $div_f64, }
            extremes! {
                $read_f32 $write_f32 minimum_f32: $min_f32, maximum_f32: $max_f32, $nan_f32
            }
            extremes! {
                $read_f64 $write_f64 minimum_f64: $min_f64, maximum_f64: $max_f64, $nan_f64
            }
            unary! {
                up_8_of_16: $up_16::<8>,
                down_8_of_16: $down_16::<8>,
                up_16_of_32: $up_32::<16>,
                down_16_of_32: $down_32::<16>,
            }
            #[inline(always)]
            unsafe fn nan_mask_f32(self) -> Self {
                // SAFETY: the caller's CPU has the instruction set.
                unsafe { $nan_f32($read_f32(self), $read_f32(self)) }
            }
            $($other)*
        }
    };
}

pub(super) use {extremes, unary, vector};
