//! Export to other tools: the weights of a checkpoint as one safetensors file, tensors by name.

use crate::model::layout::ParameterLayout;
use crate::train::checkpoint::files::replace;
use crate::train::checkpoint::manifest::{MANIFEST, Manifest};
use crate::train::checkpoint::part::read_parts;
use crate::train::checkpoint::reshard::{ParameterRun, RunPool};
use crate::train::checkpoint::{CheckpointError, damaged, failed};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::io;
use std::path::Path;

/// Writes the weights of the checkpoint in `place` to `file` atomically: on failure no part of it
/// is there. Every file of the checkpoint is compared with its digest first.
///
/// # Errors
/// [`CheckpointError`].
pub fn export(place: &Path, file: &Path) -> Result<(), CheckpointError> {
    let manifest = Manifest::read(place)?;
    let layout = ParameterLayout::whole(&manifest.config);
    let mut pool = RunPool::wanting(&[ParameterRun { start: 0, len: layout.len() }]);
    read_parts(place, &manifest.parts, &mut pool)?;
    let mut tensors = Vec::new();
    for entry in &layout.entries {
        let mut buffers: [Vec<f32>; 3] = Default::default();
        let run = ParameterRun { start: entry.global, len: entry.len() };
        let read = pool.read(run, &mut buffers);
        read.map_err(|why| damaged(&place.join(MANIFEST), None, why))?;
        let [weights, ..] = buffers;
        let shape = if entry.full[1] == 1 { vec![entry.full[0]] } else { entry.full.to_vec() };
        tensors.push((entry.name.as_str(), shape, weights));
    }
    let views = tensors.iter().map(|(name, shape, weights)| {
        let bytes = bytemuck::cast_slice(weights);
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (*name, view.expect("four bytes a number"))
    });
    let bytes = safetensors::serialize(views, None);
    replace(file, &bytes.map_err(|why| failed(file)(io::Error::other(why)))?)
}
