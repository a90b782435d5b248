//! The processor: the numbers of system calls that are answered, and what else differs.

use libc::c_long;

/// `AUDIT_ARCH_*` of this processor.
#[cfg(target_arch = "x86_64")]
pub const AUDIT: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const AUDIT: u32 = 0xc000_00b7;

/// A system call, whatever its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Bpf,
    /// Opens `path` (argument 0).
    Open,
    OpenAt,
    OpenAt2,
    Creat,
    Stat,
    Lstat,
    StatAt,
    Statx,
    Access,
    AccessAt,
    Readlink,
    ReadlinkAt,
    Statfs,
    /// Changes what is at the path of argument 0, or of 0 and 1.
    Change(u8),
    /// The same with a folder's descriptor before each path.
    ChangeAt(u8),
    /// The path of argument 1 is the new one; argument 0 is text.
    Symlink,
    SymlinkAt,
    Bind,
    Connect,
    Uname,
    Affinity,
    SetAffinity,
    Limit,
    PerfEventOpen,
    Ioctl,
    EpollCtl,
}

/// System calls that are answered wherever they are there.
const COMMON: &[(c_long, Call)] = &[
    (libc::SYS_bpf, Call::Bpf),
    (libc::SYS_openat, Call::OpenAt),
    (libc::SYS_openat2, Call::OpenAt2),
    (libc::SYS_newfstatat, Call::StatAt),
    (libc::SYS_statx, Call::Statx),
    (libc::SYS_faccessat, Call::AccessAt),
    (libc::SYS_faccessat2, Call::AccessAt),
    (libc::SYS_readlinkat, Call::ReadlinkAt),
    (libc::SYS_statfs, Call::Statfs),
    (libc::SYS_truncate, Call::Change(1)),
    (libc::SYS_mkdirat, Call::ChangeAt(1)),
    (libc::SYS_mknodat, Call::ChangeAt(1)),
    (libc::SYS_unlinkat, Call::ChangeAt(1)),
    (libc::SYS_fchmodat, Call::ChangeAt(1)),
    (libc::SYS_fchownat, Call::ChangeAt(1)),
    (libc::SYS_renameat, Call::ChangeAt(2)),
    (libc::SYS_renameat2, Call::ChangeAt(2)),
    (libc::SYS_linkat, Call::ChangeAt(2)),
    (libc::SYS_symlinkat, Call::SymlinkAt),
    (libc::SYS_bind, Call::Bind),
    (libc::SYS_connect, Call::Connect),
    (libc::SYS_uname, Call::Uname),
    (libc::SYS_sched_getaffinity, Call::Affinity),
    (libc::SYS_sched_setaffinity, Call::SetAffinity),
    (libc::SYS_prlimit64, Call::Limit),
    (libc::SYS_setrlimit, Call::Limit),
    (libc::SYS_perf_event_open, Call::PerfEventOpen),
    (libc::SYS_ioctl, Call::Ioctl),
    (libc::SYS_epoll_ctl, Call::EpollCtl),
];

/// System calls that only older processors have.
#[cfg(target_arch = "x86_64")]
const OLD: &[(c_long, Call)] = &[
    (libc::SYS_open, Call::Open),
    (libc::SYS_creat, Call::Creat),
    (libc::SYS_stat, Call::Stat),
    (libc::SYS_lstat, Call::Lstat),
    (libc::SYS_access, Call::Access),
    (libc::SYS_readlink, Call::Readlink),
    (libc::SYS_mkdir, Call::Change(1)),
    (libc::SYS_rmdir, Call::Change(1)),
    (libc::SYS_unlink, Call::Change(1)),
    (libc::SYS_chmod, Call::Change(1)),
    (libc::SYS_chown, Call::Change(1)),
    (libc::SYS_lchown, Call::Change(1)),
    (libc::SYS_mknod, Call::Change(1)),
    (libc::SYS_rename, Call::Change(2)),
    (libc::SYS_link, Call::Change(2)),
    (libc::SYS_symlink, Call::Symlink),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[(c_long, Call)] = &[];

/// All of them with their numbers.
pub fn calls() -> impl Iterator<Item = (c_long, Call)> {
    COMMON.iter().chain(OLD).copied()
}

/// The call of a number.
pub fn call(number: c_long) -> Option<Call> {
    calls()
        .find(|(known, _)| *known == number)
        .map(|(_, call)| call)
}
