//! Vector operations on 512 bits, in AVX-512 F, BW and DQ.

use super::intrinsics::{extremes, unary, vector};
use crate::cpu::intrinsics::{binary, lanes};
use crate::cpu::operations::Register;
use crate::cpu::vector::Vector;
use std::arch::x86_64::*;

vector! {
    __m512i;
    bits: _mm512_and_si512 _mm512_or_si512 _mm512_xor_si512;
    add: _mm512_add_epi8 _mm512_add_epi16 _mm512_add_epi32 _mm512_add_epi64;
    mul: _mm512_mullo_epi16 _mm512_mullo_epi32;
    min: _mm512_min_epi8 _mm512_min_epi16 _mm512_min_epi32
        _mm512_min_epu8 _mm512_min_epu16 _mm512_min_epu32;
    max: _mm512_max_epi8 _mm512_max_epi16 _mm512_max_epi32
        _mm512_max_epu8 _mm512_max_epu16 _mm512_max_epu32;
    shift: _mm512_slli_epi16 _mm512_srli_epi16 _mm512_slli_epi32 _mm512_srli_epi32;
    f32: _mm512_castsi512_ps _mm512_castps_si512
        _mm512_add_ps _mm512_mul_ps _mm512_div_ps _mm512_min_ps _mm512_max_ps;
    f64: _mm512_castsi512_pd _mm512_castpd_si512
        _mm512_add_pd _mm512_mul_pd _mm512_div_pd _mm512_min_pd _mm512_max_pd;
    nan: |a, b| _mm512_movm_epi32(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b)),
        |a, b| _mm512_movm_epi64(_mm512_cmp_pd_mask::<_CMP_UNORD_Q>(a, b));

    binary! {
        mul_64: _mm512_mullo_epi64,
        min_i64: _mm512_min_epi64,
        min_u64: _mm512_min_epu64,
        max_i64: _mm512_max_epi64,
        max_u64: _mm512_max_epu64,
    }

    #[inline(always)]
    unsafe fn widen_f16(self) -> [Self; 2] {
        // SAFETY: the caller's CPU has the instruction set.
        unsafe {
            let low = _mm512_cvtph_ps(_mm512_castsi512_si256(self));
            let high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(self));
            [_mm512_castps_si512(low), _mm512_castps_si512(high)]
        }
    }

    #[inline(always)]
    unsafe fn narrow_f16([low, high]: [Self; 2]) -> Self {
        // SAFETY: the caller's CPU has the instruction set.
        unsafe {
            let low = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(low));
            let high = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(high));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }
}
