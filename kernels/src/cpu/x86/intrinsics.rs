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

/// Implements `Vector` for a register by the instructions that every width has, in rows, and by the
/// methods after them.
macro_rules! vector {
    ($register:ty: $load:ident $store:ident $zero:ident $set_32:ident;
        bits: $and:ident $or:ident $xor:ident;
        add: $add_8:ident $add_16:ident $add_32:ident $add_64:ident;
        mul: $mul_16:ident $mul_32:ident;
        min: $min_i8:ident $min_i16:ident $min_i32:ident
            $min_u8:ident $min_u16:ident $min_u32:ident;
        max: $max_i8:ident $max_i16:ident $max_i32:ident
            $max_u8:ident $max_u16:ident $max_u32:ident;
        shift: $up_16:ident $down_16:ident $down_32:ident;
        halves: $unpack_low:ident $unpack_high:ident $pack:ident;
        f32: $read_f32:ident $write_f32:ident $set_f32:ident
            $add_f32:ident $mul_f32:ident $div_f32:ident $min_f32:ident $max_f32:ident;
        f64: $read_f64:ident $write_f64:ident $set_f64:ident
            $add_f64:ident $mul_f64:ident $div_f64:ident $min_f64:ident $max_f64:ident;
        nan: $nan_f32:expr, $nan_f64:expr;
        $($other:tt)*
    ) => {
        register! { $register: $load $store }

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
                down_16_of_32: $down_32::<16>,
            }
            splat! {
                splat_32(u32): |lane| $set_32(lane.cast_signed()),
                splat_f32(f32): |lane| $write_f32($set_f32(lane)),
                splat_f64(f64): |lane| $write_f64($set_f64(lane)),
            }
            halves! { $unpack_low $unpack_high $pack $zero }
            $($other)*
        }
    };
}

pub(super) use {extremes, halves, unary, vector};
