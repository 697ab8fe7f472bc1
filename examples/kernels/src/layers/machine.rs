//! The interface of a layer to a GPU.

use super::call::DeviceSlice;
use bytemuck::Pod;
use maypole_kernels::cuda::CudaError;
use std::ops::Range;

/// A type of numbers that layers compute with: `f32` or `f64`.
pub trait Float: Pod + Send + Sync + private::Sealed {
    /// The module with the kernels for this type.
    const MODULE: &'static str;
    /// The least finite number of the type.
    const LEAST: f64;
}

impl Float for f32 {
    const MODULE: &'static str = "layers_f32";
    const LEAST: f64 = f32::MIN as f64;
}

impl Float for f64 {
    const MODULE: &'static str = "layers_f64";
    const LEAST: f64 = f64::MIN;
}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// The memory of one GPU, and its kernels. Work is done in the order of the calls.
///
/// Memory is one piece of bytes, which the host sees as a copy of equal length.
pub trait Machine: Send {
    /// Makes sure that there are `bytes` bytes. What the memory held may be lost.
    ///
    /// # Errors
    /// [`CudaError`] if there is not so much memory.
    fn reserve(&mut self, bytes: usize) -> Result<(), CudaError>;

    /// Returns the host's copy of the memory, of at least as many bytes as were reserved. Waits
    /// for copies in flight.
    ///
    /// # Errors
    /// [`CudaError`] if earlier work has failed.
    fn staging(&mut self) -> Result<&mut [u8], CudaError>;

    /// Copies these bytes from the host's copy.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    fn upload(&mut self, bytes: Range<usize>) -> Result<(), CudaError>;

    /// Runs a kernel.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses the kernel or the launch.
    ///
    /// # Panics
    /// If a place of the launch is not in the memory.
    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError>;

    /// Copies these bytes to the host's copy, and waits until all work is done.
    ///
    /// # Errors
    /// [`CudaError`] if this or earlier work has failed.
    fn download(&mut self, bytes: Range<usize>) -> Result<(), CudaError>;
}

/// One parameter of a kernel: eight bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum LaunchWord {
    /// A pointer to these bytes of the memory.
    Place(Range<usize>),
    /// A count, as `u64`.
    Count(u64),
    /// A `double`.
    Number(f64),
}

impl LaunchWord {
    /// The eight bytes of the parameter, if the memory begins at `memory`.
    pub fn bits(&self, memory: u64) -> u64 {
        match self {
            Self::Place(bytes) => memory + bytes.start as u64,
            Self::Count(count) => *count,
            Self::Number(number) => number.to_bits(),
        }
    }
}

/// A kernel and its parameters. The kernel reaches no memory outside of its places: the functions
/// that make launches have checked the shapes.
#[derive(Clone, Debug)]
pub struct Launch {
    module: &'static str,
    kernel: &'static str,
    blocks: u32,
    threads: u32,
    words: Vec<LaunchWord>,
}

impl Launch {
    /// A launch of `kernel` for numbers of type `T`. Words are added one by one, in the order of
    /// the kernel's parameters.
    ///
    /// # Panics
    /// If a grid cannot have so many blocks.
    pub(super) fn new<T: Float>(kernel: &'static str, blocks: usize, threads: u32) -> Self {
        let most = i32::MAX as usize;
        assert!(blocks <= most, "{kernel}: {blocks} blocks, and a grid has at most {most}");
        Self { module: T::MODULE, kernel, blocks: blocks as u32, threads, words: Vec::new() }
    }

    pub(super) fn slice<T>(self, slice: DeviceSlice<T>) -> Self {
        self.place(slice.bytes())
    }

    pub(super) fn place(mut self, bytes: Range<usize>) -> Self {
        self.words.push(LaunchWord::Place(bytes));
        self
    }

    pub(super) fn count(mut self, count: usize) -> Self {
        self.words.push(LaunchWord::Count(count as u64));
        self
    }

    pub(super) fn number(mut self, number: f64) -> Self {
        self.words.push(LaunchWord::Number(number));
        self
    }

    /// Runs the kernel, unless it has no blocks.
    pub(super) fn on(self, machine: &mut dyn Machine) -> Result<(), CudaError> {
        if self.blocks == 0 { Ok(()) } else { machine.launch(&self) }
    }

    /// Makes sure that every place is within a memory of `capacity` bytes.
    ///
    /// # Panics
    /// If a place is not.
    pub fn assert_within(&self, capacity: usize) {
        let end = |word: &LaunchWord| match word {
            LaunchWord::Place(bytes) => bytes.end.max(bytes.start),
            LaunchWord::Count(_) | LaunchWord::Number(_) => 0,
        };
        let end = self.words.iter().map(end).max().unwrap_or(0);
        let kernel = self.kernel;
        assert!(end <= capacity, "{kernel} reaches byte {end} of {capacity}");
    }

    /// The module that has the kernel.
    pub fn module(&self) -> &'static str {
        self.module
    }

    /// The name of the kernel.
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// Blocks of the grid, along its first dimension.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Threads of a block, along its first dimension.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The parameters.
    pub fn words(&self) -> &[LaunchWord] {
        &self.words
    }
}
