//! A kernel's files, as its packages unpack them.

use std::path::{Path, PathBuf};

/// A kernel that has been unpacked in the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelImage {
    /// As `uname -r` says it.
    pub version: String,
    /// Where its packages are unpacked.
    pub root: PathBuf,
    /// `vmlinuz`.
    pub image: PathBuf,
    /// `.config`.
    pub config: PathBuf,
}

impl KernelImage {
    /// Returns the folder that `depmod -b` and `modprobe -d` expect.
    pub fn modules_base(&self) -> PathBuf {
        self.root.join("usr")
    }

    /// Returns the modules' directory.
    pub fn modules(&self) -> PathBuf {
        self.modules_base().join("lib/modules").join(&self.version)
    }

    /// Finds the parts of an unpacked kernel, in both of Debian's layouts.
    pub(super) fn at(version: &str, root: &Path) -> Option<KernelImage> {
        let modules = root.join("usr/lib/modules").join(version);
        let boot = root.join("boot");
        let pick = |new: &str, old: &str| {
            [modules.join(new), boot.join(format!("{old}-{version}"))]
                .into_iter()
                .find(|path| path.is_file())
        };
        let kernel = KernelImage {
            version: version.to_owned(),
            root: root.to_owned(),
            image: pick("vmlinuz", "vmlinuz")?,
            config: pick("config", "config")?,
        };
        modules.join("kernel").is_dir().then_some(kernel)
    }
}
