//! Vector operations on 128 and 256 bits, in AVX2 and F16C.

use super::intrinsics::{extremes, unary, vector};
use crate::cpu::intrinsics::{binary, lanes};
use crate::cpu::operations::{PartialRegister, Register};
use crate::cpu::partial;
use crate::cpu::vector::Vector;
use std::arch::x86_64::*;

/// 64-bit products, minima and maxima, which AVX2 has no instructions for.
macro_rules! emulated {
    ($add_64:ident $mul_low:ident $up:ident $down:ident
        $greater:ident $select:ident $xor:ident $splat_64:ident
    ) => {
        /// Adds three products of 32-bit halves. The fourth product reaches only bits above the
        /// lowest 64.
        #[inline(always)]
        unsafe fn mul_64(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has AVX2.
            unsafe {
                let low = $mul_low(self, other);
                let cross =
                    $add_64($mul_low($down::<32>(self), other), $mul_low(self, $down::<32>(other)));
                $add_64(low, $up::<32>(cross))
            }
        }
        #[inline(always)]
        unsafe fn min_i64(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has AVX2.
            unsafe { $select(self, other, $greater(self, other)) }
        }
        #[inline(always)]
        unsafe fn max_i64(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has AVX2.
            unsafe { $select(other, self, $greater(self, other)) }
        }
        /// With the sign bits flipped, unsigned order is signed order.
        #[inline(always)]
        unsafe fn min_u64(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has AVX2.
            unsafe {
                let flip = $splat_64(i64::MIN);
                $select(self, other, $greater($xor(self, flip), $xor(other, flip)))
            }
        }
        #[inline(always)]
        unsafe fn max_u64(self, other: Self) -> Self {
            // SAFETY: the caller's CPU has AVX2.
            unsafe {
                let flip = $splat_64(i64::MIN);
                $select(other, self, $greater($xor(self, flip), $xor(other, flip)))
            }
        }
    };
}

vector! {
    __m128i;
    bits: _mm_and_si128 _mm_or_si128 _mm_xor_si128;
    add: _mm_add_epi8 _mm_add_epi16 _mm_add_epi32 _mm_add_epi64;
    mul: _mm_mullo_epi16 _mm_mullo_epi32;
    min: _mm_min_epi8 _mm_min_epi16 _mm_min_epi32
        _mm_min_epu8 _mm_min_epu16 _mm_min_epu32;
    max: _mm_max_epi8 _mm_max_epi16 _mm_max_epi32
        _mm_max_epu8 _mm_max_epu16 _mm_max_epu32;
    shift: _mm_slli_epi16 _mm_srli_epi16 _mm_slli_epi32 _mm_srli_epi32;
    f32: _mm_castsi128_ps _mm_castps_si128
        _mm_add_ps _mm_mul_ps _mm_div_ps _mm_min_ps _mm_max_ps;
    f64: _mm_castsi128_pd _mm_castpd_si128
        _mm_add_pd _mm_mul_pd _mm_div_pd _mm_min_pd _mm_max_pd;
    nan: |a, b| _mm_castps_si128(_mm_cmp_ps::<_CMP_UNORD_Q>(a, b)),
        |a, b| _mm_castpd_si128(_mm_cmp_pd::<_CMP_UNORD_Q>(a, b));

    emulated! {
        _mm_add_epi64 _mm_mul_epu32 _mm_slli_epi64 _mm_srli_epi64
        _mm_cmpgt_epi64 _mm_blendv_epi8 _mm_xor_si128 _mm_set1_epi64x
    }

    #[inline(always)]
    unsafe fn widen_f16(self) -> [Self; 2] {
        // SAFETY: the caller's CPU has the instruction set.
        unsafe {
            let [low, high] = [_mm_cvtph_ps(self), _mm_cvtph_ps(_mm_unpackhi_epi64(self, self))];
            [_mm_castps_si128(low), _mm_castps_si128(high)]
        }
    }

    #[inline(always)]
    unsafe fn narrow_f16([low, high]: [Self; 2]) -> Self {
        // SAFETY: the caller's CPU has the instruction set.
        unsafe {
            let low = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_castsi128_ps(low));
            let high = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_castsi128_ps(high));
            _mm_unpacklo_epi64(low, high)
        }
    }
}

impl PartialRegister for __m128i {
    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        // SAFETY: passed on to our caller.
        unsafe {
            let [low, high] = partial::load(from, len);
            _mm_set_epi64x(high.cast_signed(), low.cast_signed())
        }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        // SAFETY: passed on to our caller.
        unsafe {
            let lanes =
                [_mm_cvtsi128_si64(self), _mm_cvtsi128_si64(_mm_unpackhi_epi64(self, self))];
            partial::store([lanes[0].cast_unsigned(), lanes[1].cast_unsigned()], to, len);
        }
    }
}

vector! {
    __m256i;
    bits: _mm256_and_si256 _mm256_or_si256 _mm256_xor_si256;
    add: _mm256_add_epi8 _mm256_add_epi16 _mm256_add_epi32 _mm256_add_epi64;
    mul: _mm256_mullo_epi16 _mm256_mullo_epi32;
    min: _mm256_min_epi8 _mm256_min_epi16 _mm256_min_epi32
        _mm256_min_epu8 _mm256_min_epu16 _mm256_min_epu32;
    max: _mm256_max_epi8 _mm256_max_epi16 _mm256_max_epi32
        _mm256_max_epu8 _mm256_max_epu16 _mm256_max_epu32;
    shift: _mm256_slli_epi16 _mm256_srli_epi16 _mm256_slli_epi32 _mm256_srli_epi32;
    f32: _mm256_castsi256_ps _mm256_castps_si256
        _mm256_add_ps _mm256_mul_ps _mm256_div_ps _mm256_min_ps _mm256_max_ps;
    f64: _mm256_castsi256_pd _mm256_castpd_si256
        _mm256_add_pd _mm256_mul_pd _mm256_div_pd _mm256_min_pd _mm256_max_pd;
    nan: |a, b| _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(a, b)),
        |a, b| _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_UNORD_Q>(a, b));

    emulated! {
        _mm256_add_epi64 _mm256_mul_epu32 _mm256_slli_epi64 _mm256_srli_epi64
        _mm256_cmpgt_epi64 _mm256_blendv_epi8 _mm256_xor_si256 _mm256_set1_epi64x
    }

    #[inline(always)]
    unsafe fn widen_f16(self) -> [Self; 2] {
        // SAFETY: the caller's CPU has the instruction set.
        unsafe {
            let low = _mm256_cvtph_ps(_mm256_castsi256_si128(self));
            let high = _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(self));
            [_mm256_castps_si256(low), _mm256_castps_si256(high)]
        }
    }

    #[inline(always)]
    unsafe fn narrow_f16([low, high]: [Self; 2]) -> Self {
        // SAFETY: the caller's CPU has the instruction set.
        unsafe {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(low));
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_castsi256_ps(high));
            _mm256_set_m128i(high, low)
        }
    }
}
