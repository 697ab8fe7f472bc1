//! The processor, as `/proc/cpuinfo` describes it.

use std::fs;
use std::path::Path;

/// The text of the file.
pub(crate) struct CpuInfo(String);

impl CpuInfo {
    /// Reads the file below `root`. Without the file, all fields are unknown.
    pub(crate) fn read(root: &Path) -> Self {
        Self(fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default())
    }

    /// The first value of a field.
    pub(crate) fn value(&self, field: &str) -> Option<String> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = fields.find(|(name, _)| name.trim() == field)?;
        Some(value.trim().to_owned())
    }

    /// The name of the processor. Those of ARM have two numbers instead.
    pub(crate) fn name(&self) -> Option<String> {
        let numbers = || Some((self.value("CPU implementer")?, self.value("CPU part")?));
        let arm = || numbers().map(|(maker, part)| format!("ARM {maker} part {part}"));
        self.value("model name").or_else(|| self.value("cpu")).or_else(arm)
    }

    /// How many processors the system has.
    pub(crate) fn count(&self) -> usize {
        self.0.lines().filter(|line| line.starts_with("processor")).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_without_a_name_are_told_apart() {
        let named = |text: &str| CpuInfo(text.to_owned()).name();
        assert_eq!(named("processor\t: 0\nmodel name\t: A: B").unwrap(), "A: B");
        assert_eq!(named("processor\t: 0\ncpu\t\t: POWER9").unwrap(), "POWER9");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n\nprocessor\t: 1\n";
        assert_eq!(named(arm).unwrap(), "ARM 0x41 part 0xd40");
        assert_ne!(named(arm), named(&arm.replace("0xd40", "0xd4f")));
        assert_eq!((named(""), CpuInfo(arm.to_owned()).count()), (None, 2));
    }
}
