//! Errors of a rank's GPU.

use maypole_kernels::cuda::CudaError;

/// The result of an operation on a GPU.
pub(super) type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// Why memory of a GPU cannot be used, or a kernel cannot run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A call of the driver failed.
    #[error(transparent)]
    Driver(#[from] CudaError),
    /// A GPU cannot reach the memory of another rank's.
    #[error("GPU {ordinal} cannot reach the memory of rank {rank}: {why}")]
    Unreachable {
        /// The GPU of this rank.
        ordinal: usize,
        /// The rank whose memory it is.
        rank: usize,
        /// Why.
        why: String,
    },
    /// A program would touch memory that is none of its buffers.
    #[error("the program cannot run: {0}")]
    Program(String),
}
