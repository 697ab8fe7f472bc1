//! A GPU that cannot be had, and one that fails in the middle of a training.

use crate::command::train;
use crate::support::{SEED, mesh, small};
use maypole::{Communicator, Error};
use maypole_kernels::cuda::{CudaError, driver};
use maypole_trainer::tensor::device::Device;
use maypole_trainer::train::trainer::Trainer;
use maypole_trainer_gpu::device::GpuDevice;
use maypole_trainer_kernels::layers::{Launch, Machine};
use std::ops::Range;
use std::sync::Arc;

/// A machine that computes nothing, and fails after so many launches.
struct Failing {
    memory: Vec<u8>,
    launches: usize,
}

impl Machine for Failing {
    fn reserve(&mut self, bytes: usize) -> Result<(), CudaError> {
        self.memory.resize(self.memory.len().max(bytes), 0);
        Ok(())
    }

    fn staging(&mut self) -> Result<&mut [u8], CudaError> {
        Ok(&mut self.memory)
    }

    fn upload(&mut self, _: Range<usize>) -> Result<(), CudaError> {
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError> {
        if self.launches == 0 {
            let what = format!("kernel '{}'", launch.kernel());
            return Err(CudaError::described(what, "the GPU has fallen off the bus"));
        }
        self.launches -= 1;
        Ok(())
    }

    fn download(&mut self, _: Range<usize>) -> Result<(), CudaError> {
        Ok(())
    }
}

#[test]
fn a_device_keeps_its_first_failure_and_computes_no_more() {
    let device = GpuDevice::new(Failing { memory: Vec::new(), launches: 1 });
    let mut y = [1f32; 3];
    device.gelu(&mut y, &[1.0; 3]);
    assert_eq!(Device::<f32>::failure(&device), None);
    let mut z = [5f32; 3];
    device.gelu(&mut z, &[1.0; 3]);
    device.add(&mut z, &[1.0; 3]);
    assert_eq!(z, [5.0; 3], "nothing is written after a failure");
    let failure = Device::<f32>::failure(&device).unwrap();
    assert_eq!(failure, "kernel 'gelu': the GPU has fallen off the bus");
}

/// The error of each of two ranks, of which the second one's GPU fails, and whether the rank has
/// updated a weight.
fn train_until_failure(mesh_of_two: &str, launches: usize) -> Vec<(Error, bool)> {
    let task = small();
    Communicator::run_local(2, |comm| {
        let last = comm.rank() == 1;
        let optimizer = (task.rule, task.schedule);
        let setup = mesh(mesh_of_two);
        let mut trainer = Trainer::<f32>::new(comm, &task.config, setup, SEED, optimizer).unwrap();
        if last {
            let machine = Failing { memory: Vec::new(), launches };
            trainer.parts.model.device = Arc::new(GpuDevice::new(machine));
        }
        let weights =
            |trainer: &mut Trainer<f32>| trainer.parts.store.local_shards()[0].weights.to_vec();
        let before = weights(&mut trainer);
        let error = trainer.step(&task.text(), task.rows).unwrap_err();
        (error, weights(&mut trainer) != before)
    })
}

#[test]
fn a_failure_in_the_middle_ends_the_step_on_all_ranks_with_its_reason() {
    for axes in ["dp=2", "tp=2", "pp=2"] {
        for launches in [0, 20] {
            let ended = train_until_failure(axes, launches);
            for (rank, (error, updated)) in ended.into_iter().enumerate() {
                let sentence = error.to_string();
                assert!(sentence.contains("the GPU has fallen off the bus"), "{axes}: {sentence}");
                assert!(!error.is_retryable(), "{axes}: {sentence}");
                // Without dp, a rank may update its part of the model before it learns of the
                // failure. Its step fails all the same.
                let may_update = axes != "dp=2" && rank == 0;
                assert!(!updated || may_update, "{axes}: rank {rank} has updated its weights");
            }
        }
    }
}

/// What `train run` with these options prints on standard error, if it fails.
fn refusal(options: &[&str]) -> String {
    let few = ["run", "--steps", "1", "--width", "8", "--layers", "2", "--sample", "0"];
    let ran = train().args(few).args(options).output().unwrap();
    assert!(!ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert!(ran.stdout.is_empty(), "refused before anything is printed");
    String::from_utf8(ran.stderr).unwrap()
}

#[test]
fn a_device_that_is_not_there_is_refused_before_training() {
    let none = refusal(&["--device", "cuda:99"]);
    assert!(none.starts_with("train: CUDA unavailable: "), "{none}");
    match driver() {
        Ok(_) => assert!(none.contains("there is no GPU 99"), "{none}"),
        Err(why) => {
            let any = refusal(&["--device", "cuda", "--mesh", "dp=2"]);
            assert!(any.contains(&why.to_string()), "{any}");
            assert!(any.contains("without --device, layers run on the processor"), "{any}");
        }
    }
    let wrong = refusal(&["--device", "gpu"]);
    assert!(wrong.contains("'gpu' is no device: give cpu, cuda, or cuda:N"), "{wrong}");
    let measured = refusal(&["--device", "cuda", "--mesh", "pp=2", "--stages", "measured"]);
    assert!(measured.contains("--stages measured"), "{measured}");
}
