//! Why a policy ended in the running kernel.

/// `SCX_EXIT_UNREG`: user space took the policy out.
pub const EXIT_UNREG: i32 = 64;

/// Why a policy ended, as the kernel told it (`struct scx_exit_info`).
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Exit {
    /// `enum scx_exit_kind`; 0 while the policy runs.
    pub kind: i32,
    /// The policy's or the kernel's exit code.
    pub code: i64,
    /// The kernel's text for the kind.
    pub reason: String,
    /// Details.
    pub message: String,
    /// The kernel's debug dump of an ejection; empty where there is none.
    pub dump: String,
}

impl Exit {
    /// Whether the policy was taken out by us and not ejected.
    pub fn is_normal(&self) -> bool {
        self.kind == EXIT_UNREG
    }

    /// Why the kernel ended it, in words.
    pub fn told(&self) -> String {
        if self.kind == 0 {
            // The kernel told only the policy, and that kept it for itself.
            "the kernel ended the policy; it records no reason (UEI_DEFINE, UEI_RECORD)".to_owned()
        } else if self.message.is_empty() {
            self.reason.clone()
        } else {
            format!("{} ({})", self.reason, self.message)
        }
    }
}
