//! The working memory of a communicator's calls. One call runs at a time, so all share it.

use maypole_kernels::Region;

use crate::engine::calls::call::ReadyCall;
use crate::execute::Buffers;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct WorkspaceNeed {
    pub(crate) scratch: usize,
    /// Bytes for a copy of the input. Zero if the program reads the caller's.
    pub(crate) staging: usize,
    /// The program itself, and not the scaling of a call, needs the copy.
    pub(crate) stages_input: bool,
}

/// Scratch and staging memory, as large as the most demanding call needed.
#[derive(Debug)]
pub(super) struct Workspace {
    scratch: Region,
    staging: Region,
}

impl Default for Workspace {
    fn default() -> Self {
        Self { scratch: Region::new(0), staging: Region::new(0) }
    }
}

impl Workspace {
    /// Grows the workspace for a call with this `need`. Returns false if there is no memory for it.
    #[must_use]
    pub(super) fn grow(&mut self, need: WorkspaceNeed) -> bool {
        grow(&mut self.scratch, need.scratch) && grow(&mut self.staging, need.staging)
    }

    /// The memory of a call with this `need`. Copies or scales the input, if the call needs that.
    #[inline(always)]
    pub(super) fn buffers<'a>(
        &'a self,
        need: WorkspaceNeed,
        ReadyCall { call, scaling, input, output }: ReadyCall<'a>,
    ) -> Buffers<'a> {
        let mut buffers = Buffers { input, output, scratch: self.scratch.view() };
        if scaling.is_some() || need.stages_input {
            let into = match call.in_place && !need.stages_input {
                true => output,
                false => self.staging.view().slice(0, input.len()),
            };
            match scaling {
                Some(scaling) => scaling.apply(into, input, call.kind),
                None => into.copy_from(input),
            }
            buffers.input = into.as_view();
        }
        buffers
    }
}

fn grow(region: &mut Region, bytes: usize) -> bool {
    if region.len() >= bytes {
        return true;
    }
    let grown = Region::try_new(bytes).map(|larger| *region = larger);
    grown.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(scratch: usize, staging: usize) -> WorkspaceNeed {
        WorkspaceNeed { scratch, staging, stages_input: false }
    }

    #[test]
    fn memory_grows_with_the_need() {
        let mut workspace = Workspace::default();
        assert!(workspace.grow(need(8 << 20, 10)));
        assert!(workspace.grow(need(100, 3 << 20)));
        assert!(!workspace.grow(need(1 << 62, 0)) && !workspace.grow(need(0, usize::MAX)));
        assert_eq!((workspace.scratch.len(), workspace.staging.len()), (8 << 20, 3 << 20));
    }
}
