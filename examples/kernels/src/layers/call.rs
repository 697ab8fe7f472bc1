//! Slices of the host as places in a GPU's memory, for one call of a layer.

use super::machine::Machine;
use bytemuck::{AnyBitPattern, NoUninit, cast_slice, cast_slice_mut};
use maypole_kernels::cuda::CudaError;
use std::marker::PhantomData;
use std::ops::Range;

/// Slices begin at multiples of so many bytes, as a GPU reads them fastest.
const ALIGNMENT: usize = 256;

/// The place of a slice in a GPU's memory, for one [`LayerCall`].
#[derive(Debug)]
pub struct DeviceSlice<T> {
    start: usize,
    len: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for DeviceSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<T> {}

impl<T> DeviceSlice<T> {
    /// The number of elements.
    pub fn len(self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The bytes of the memory.
    pub(super) fn bytes(self) -> Range<usize> {
        self.start..self.start + self.len * size_of::<T>()
    }
}

/// The slices of one call. Inputs come first, then slices that are read and written, then results,
/// then memory that only kernels use. So one copy brings all inputs, and one copy all results.
#[derive(Debug, Default)]
pub struct LayerCall<'a> {
    reads: Vec<(usize, &'a [u8])>,
    /// Those that are copied to the GPU, and then those that are not.
    writes: Vec<(usize, &'a mut [u8])>,
    /// How many of `writes` are copied to the GPU.
    changed: usize,
    /// Bytes that are copied to the GPU.
    uploaded: usize,
    /// The bytes that are copied back.
    downloaded: Range<usize>,
    end: usize,
}

impl<'a> LayerCall<'a> {
    /// A call without slices.
    pub fn new() -> Self {
        Self::default()
    }

    fn place<T>(&mut self, len: usize) -> DeviceSlice<T> {
        let start = self.end.next_multiple_of(ALIGNMENT);
        self.end = start + len * size_of::<T>();
        DeviceSlice { start, len, kind: PhantomData }
    }

    /// Adds a slice that kernels read.
    ///
    /// # Panics
    /// If a slice that kernels write was added before.
    pub fn reads<T: NoUninit>(&mut self, slice: &'a [T]) -> DeviceSlice<T> {
        assert!(self.writes.is_empty(), "what is only read comes first");
        let place = self.place(slice.len());
        self.reads.push((place.start, cast_slice(slice)));
        self.uploaded = self.end;
        place
    }

    /// Adds a slice that kernels read and write.
    ///
    /// # Panics
    /// If a slice that kernels only write was added before.
    pub fn changes<T: NoUninit + AnyBitPattern>(&mut self, slice: &'a mut [T]) -> DeviceSlice<T> {
        assert_eq!(self.changed, self.writes.len(), "what is only written comes later");
        let place = self.makes(slice);
        self.changed += 1;
        self.uploaded = self.end;
        place
    }

    /// Adds a slice that kernels write, every element of it.
    ///
    /// # Panics
    /// If memory that only kernels use was added before.
    pub fn makes<T: NoUninit + AnyBitPattern>(&mut self, slice: &'a mut [T]) -> DeviceSlice<T> {
        let place = self.place(slice.len());
        if self.writes.is_empty() {
            self.downloaded = place.start..place.start;
        }
        let gap = place.start - self.downloaded.end;
        assert!(gap < ALIGNMENT, "memory that only kernels use comes last");
        self.downloaded.end = self.end;
        self.writes.push((place.start, cast_slice_mut(slice)));
        place
    }

    /// Adds memory for `len` elements that only kernels use.
    pub fn scratch<T>(&mut self, len: usize) -> DeviceSlice<T> {
        self.place(len)
    }

    /// Copies the inputs to `machine`, lets `work` run kernels, and copies the results back.
    ///
    /// # Errors
    /// [`CudaError`] if the machine has too little memory, or any of its work fails. The results
    /// are then not written.
    pub fn run<M: Machine + ?Sized>(
        self,
        machine: &mut M,
        work: impl FnOnce(&mut M) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        machine.reserve(self.end)?;
        let staging = machine.staging()?;
        for (start, slice) in &self.reads {
            staging[*start..][..slice.len()].copy_from_slice(slice);
        }
        for (start, slice) in &self.writes[..self.changed] {
            staging[*start..][..slice.len()].copy_from_slice(slice);
        }
        machine.upload(0..self.uploaded)?;
        work(machine)?;
        machine.download(self.downloaded)?;
        let staging = machine.staging()?;
        for (start, slice) in self.writes {
            slice.copy_from_slice(&staging[start..][..slice.len()]);
        }
        Ok(())
    }
}
