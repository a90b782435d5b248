//! The processor: the numbers of system calls that are answered, and what else differs.

use libc::c_long;

/// `AUDIT_ARCH_*` of this processor.
#[cfg(target_arch = "x86_64")]
pub const AUDIT: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const AUDIT: u32 = 0xc000_00b7;

/// The change of what is at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    MakeFolder,
    Remove,
    RemoveFolder,
    /// A flag says whether it is a folder.
    RemoveAt,
    /// Mode, owner, times, extended attributes.
    Attributes,
    Other,
}

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
    /// Runs the program at `path` untouched, and is noted.
    Execute,
    ExecuteAt,
    /// Changes what is at the path of argument 0.
    Change(Change),
    /// The same at the paths of arguments 0 and 1.
    Change2(Change),
    /// The same with a folder's descriptor before each path.
    ChangeAt(Change),
    ChangeAt2(Change),
    /// Changes the file of a descriptor, which may be open for reading alone.
    ChangeOpen(Change),
    /// Would bring calls past the filter.
    Refused,
    /// The path of argument 1 is the new one; argument 0 is text.
    Symlink,
    SymlinkAt,
    Bind,
    Connect,
    Uname,
    /// Runs untouched, and is noted.
    Sysinfo,
    Affinity,
    SetAffinity,
    Limit,
    PerfEventOpen,
    Ioctl,
    EpollCtl,
}

/// `fchmodat2()`, of Linux 6.6, has one number on all processors; not every libc's table has it.
const SYS_FCHMODAT2: c_long = 452;

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
    (libc::SYS_execve, Call::Execute),
    (libc::SYS_execveat, Call::ExecuteAt),
    (libc::SYS_truncate, Call::Change(Change::Other)),
    (libc::SYS_mkdirat, Call::ChangeAt(Change::MakeFolder)),
    (libc::SYS_mknodat, Call::ChangeAt(Change::Other)),
    (libc::SYS_unlinkat, Call::ChangeAt(Change::RemoveAt)),
    (libc::SYS_fchmodat, Call::ChangeAt(Change::Attributes)),
    (SYS_FCHMODAT2, Call::ChangeAt(Change::Attributes)),
    (libc::SYS_fchownat, Call::ChangeAt(Change::Attributes)),
    (libc::SYS_utimensat, Call::ChangeAt(Change::Attributes)),
    (libc::SYS_setxattr, Call::Change(Change::Attributes)),
    (libc::SYS_lsetxattr, Call::Change(Change::Attributes)),
    (libc::SYS_removexattr, Call::Change(Change::Attributes)),
    (libc::SYS_lremovexattr, Call::Change(Change::Attributes)),
    (libc::SYS_fchmod, Call::ChangeOpen(Change::Attributes)),
    (libc::SYS_fchown, Call::ChangeOpen(Change::Attributes)),
    (libc::SYS_fsetxattr, Call::ChangeOpen(Change::Attributes)),
    (libc::SYS_fremovexattr, Call::ChangeOpen(Change::Attributes)),
    (libc::SYS_io_uring_setup, Call::Refused),
    (libc::SYS_renameat, Call::ChangeAt2(Change::Other)),
    (libc::SYS_renameat2, Call::ChangeAt2(Change::Other)),
    (libc::SYS_linkat, Call::ChangeAt2(Change::Other)),
    (libc::SYS_symlinkat, Call::SymlinkAt),
    (libc::SYS_bind, Call::Bind),
    (libc::SYS_connect, Call::Connect),
    (libc::SYS_uname, Call::Uname),
    (libc::SYS_sysinfo, Call::Sysinfo),
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
    (libc::SYS_mkdir, Call::Change(Change::MakeFolder)),
    (libc::SYS_rmdir, Call::Change(Change::RemoveFolder)),
    (libc::SYS_unlink, Call::Change(Change::Remove)),
    (libc::SYS_chmod, Call::Change(Change::Attributes)),
    (libc::SYS_chown, Call::Change(Change::Attributes)),
    (libc::SYS_lchown, Call::Change(Change::Attributes)),
    (libc::SYS_utime, Call::Change(Change::Attributes)),
    (libc::SYS_utimes, Call::Change(Change::Attributes)),
    (libc::SYS_futimesat, Call::ChangeAt(Change::Attributes)),
    (libc::SYS_mknod, Call::Change(Change::Other)),
    (libc::SYS_rename, Call::Change2(Change::Other)),
    (libc::SYS_link, Call::Change2(Change::Other)),
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
