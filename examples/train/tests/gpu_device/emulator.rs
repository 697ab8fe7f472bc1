//! A GPU that is a program of this machine: compiles the kernels of layers for the processor, and
//! runs each launch as fibers.

use crate::fake_gpu::repository;
use maypole_kernels::cuda::CudaError;
use maypole_trainer_kernels::layers::MODULES;
use maypole_trainer_kernels::layers::{Launch, LaunchWord, Machine};
use std::io::{BufReader, BufWriter, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, OnceLock};
use tempfile::TempDir;

/// The compiled kernels, deleted when dropped.
pub(crate) struct Emulator {
    folder: TempDir,
}

pub(crate) fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/cuda")
}

/// The sources of the program that runs these kernels on the processor.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu_device/emulated")
}

fn copy_folder(from: &Path, to: &Path, edit: &dyn Fn(String) -> String) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_file() {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(copy, edit(text)).unwrap();
        }
    }
}

impl Emulator {
    /// The kernels as they are. `None` if there is no compiler.
    pub(crate) fn right() -> Option<&'static Self> {
        static RIGHT: OnceLock<Option<Emulator>> = OnceLock::new();
        RIGHT.get_or_init(|| Self::edited(|text| text)).as_ref()
    }

    /// The kernels, with `edit` applied to each of their files.
    pub(crate) fn edited(edit: impl Fn(String) -> String) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(&kernels(), folder.path(), &edit);
        let machine = repository().join("tests/fake_gpu");
        let compiled = Command::new("c++")
            .args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"])
            .args([Path::new("-I."), Path::new("-I"), &machine])
            .arg(sources().join("program.cpp"))
            .args(["fibers.cpp", "exact.cpp"].map(|name| machine.join("emulated").join(name)))
            .args(["-o", "emulator"])
            .current_dir(folder.path())
            .output()
            .ok()?;
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        Some(Self { folder })
    }

    /// A GPU with these kernels.
    pub(crate) fn start(&self) -> EmulatedGpu {
        let program: PathBuf = self.folder.path().join("emulator");
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the emulator starts");
        let commands = BufWriter::new(child.stdin.take().unwrap());
        let answers = BufReader::new(child.stdout.take().unwrap());
        EmulatedGpu { child, commands, answers, memory: Vec::new(), reached: Vec::new() }
    }
}

/// One emulated GPU.
///
/// Memory that was not copied to it is not a number: a kernel that reads what no kernel has
/// written gives no right result. Bytes that belong to no slice must stay as they are.
pub(crate) struct EmulatedGpu {
    child: Child,
    commands: BufWriter<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// The host's copy.
    memory: Vec<u8>,
    /// The places of all launches since the last upload.
    reached: Vec<Range<usize>>,
}

impl EmulatedGpu {
    fn send(&mut self, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.commands.write_all(&bytes).expect("the emulator reads");
    }

    /// The whole memory, as the kernels left it.
    fn fetch(&mut self) -> Result<Vec<u8>, CudaError> {
        let mut all = vec![0; self.memory.len()];
        self.send(&[2, 0, all.len() as u64]);
        let flushed = self.commands.flush();
        flushed.and_then(|()| self.answers.read_exact(&mut all)).map_err(|_| {
            let status = self.child.wait().expect("it was started");
            CudaError::described("an emulated GPU", format!("the emulator ended with {status}"))
        })?;
        Ok(all)
    }
}

/// The number of parameters that the compiled kernel has, which the crate contains.
fn parameters(launch: &Launch) -> usize {
    static COMPILED: LazyLock<[(&str, String); 2]> = LazyLock::new(|| {
        ["layers_f32", "layers_f64"].map(|name| (name, MODULES.ptx(name).unwrap()))
    });
    let (_, text) = COMPILED.iter().find(|(name, _)| *name == launch.module()).unwrap();
    let (_, entry) = text.split_once(&format!(".entry {}(", launch.kernel())).unwrap();
    entry.split(')').next().unwrap().matches(".param").count()
}

impl Machine for EmulatedGpu {
    fn reserve(&mut self, bytes: usize) -> Result<(), CudaError> {
        // A few bytes more, so that the end of the memory is no slice's end.
        let bytes = bytes + 64;
        if bytes > self.memory.len() {
            self.memory.resize(bytes, 0xff);
            self.send(&[0, bytes as u64]);
        }
        Ok(())
    }

    fn staging(&mut self) -> Result<&mut [u8], CudaError> {
        Ok(&mut self.memory)
    }

    fn upload(&mut self, bytes: Range<usize>) -> Result<(), CudaError> {
        assert_eq!(bytes.start, 0, "inputs come first");
        self.memory[bytes.end..].fill(0xff);
        let all = std::mem::take(&mut self.memory);
        self.send(&[1, 0, all.len() as u64]);
        self.commands.write_all(&all).expect("the emulator reads");
        self.memory = all;
        self.reached.clear();
        Ok(())
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), CudaError> {
        launch.assert_within(self.memory.len());
        let words = launch.words().len();
        assert_eq!(parameters(launch), words, "{}: run .ci/ptx --write", launch.kernel());
        let size = if launch.module() == "layers_f32" { 4 } else { 8 };
        let name = launch.kernel();
        self.send(&[3, size, name.len() as u64]);
        self.commands.write_all(name.as_bytes()).expect("the emulator reads");
        let words = launch.words();
        self.send(&[launch.blocks().into(), launch.threads().into(), words.len() as u64]);
        for word in words {
            if let LaunchWord::Place(bytes) = word {
                self.reached.push(bytes.clone());
            }
            self.send(&[matches!(word, LaunchWord::Place(_)).into(), word.bits(0)]);
        }
        Ok(())
    }

    fn download(&mut self, bytes: Range<usize>) -> Result<(), CudaError> {
        let mut all = self.fetch()?;
        let results = all[bytes.clone()].to_vec();
        for place in &self.reached {
            all[place.clone()].copy_from_slice(&self.memory[place.clone()]);
        }
        let stray = all.iter().zip(&self.memory).position(|(after, before)| after != before);
        assert_eq!(stray, None, "a kernel wrote to this byte, which belongs to no slice");
        self.memory[bytes].copy_from_slice(&results);
        Ok(())
    }
}

impl Drop for EmulatedGpu {
    fn drop(&mut self) {
        // It ends by itself at the end of its input. A failure to kill it is ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
