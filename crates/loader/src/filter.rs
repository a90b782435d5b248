//! Starts a program whose system calls are answered here: the filter of seccomp, and the descriptor on which the calls arrive.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use libc::{c_long, c_ulong, sock_filter};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::arch::{self, Call};
use crate::notify::{self, Asked, Next, Reply};

/// `SECCOMP_SET_MODE_FILTER`, `SECCOMP_FILTER_FLAG_NEW_LISTENER`.
const SET_MODE_FILTER: c_ulong = 1;
const NEW_LISTENER: c_ulong = 8;

const ALLOW: u32 = 0x7fff_0000;
const NOTIFY: u32 = 0x7fc0_0000;
const REFUSE: u32 = 0x0005_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The lower half of an argument.
const fn argument(index: u32) -> u32 {
    16 + 8 * index
}

/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_BPF`, which a loader asks of what stands for a perf event.
pub const PERF_IOCTLS: [u32; 3] = [0x2400, 0x2401, 0x4004_2408];

/// `RLIMIT_MEMLOCK`.
const MEMLOCK: u32 = 8;

fn load(offset: u32) -> sock_filter {
    sock_filter {
        code: 0x20,
        jt: 0,
        jf: 0,
        k: offset,
    }
}

fn answer(k: u32) -> sock_filter {
    sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Skips `jt` instructions if the loaded word is `k`, else `jf`.
fn jump(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: 0x15,
        jt,
        jf,
        k,
    }
}

/// Returns the filter: a thread with one of our calls waits for the answer, everything else runs untouched.
fn program() -> Vec<sock_filter> {
    // Programs for another processor have other numbers: none of their calls is let through.
    let mut program = vec![
        load(ARCH),
        jump(arch::AUDIT, 1, 0),
        answer(REFUSE | libc::ENOSYS as u32),
        load(NUMBER),
    ];
    for (number, call) in arch::calls() {
        match conditions(number, call) {
            None => program.extend([jump(number as u32, 0, 1), answer(NOTIFY)]),
            Some((index, values)) => {
                let nr = values.len() as u8;
                program.push(jump(number as u32, 0, nr + 3));
                program.push(load(argument(index)));
                for (at, value) in values.iter().enumerate() {
                    program.push(jump(*value, nr - at as u8, 0));
                }
                program.push(answer(ALLOW));
                program.push(answer(NOTIFY));
            }
        }
    }
    program.push(answer(ALLOW));
    program
}

/// The values of an argument with which a call is one of ours; `None`: it always is.
fn conditions(number: c_long, call: Call) -> Option<(u32, &'static [u32])> {
    match call {
        Call::Ioctl => Some((1, &PERF_IOCTLS)),
        Call::Limit if number == libc::SYS_setrlimit => Some((0, &[MEMLOCK])),
        Call::Limit => Some((1, &[MEMLOCK])),
        _ => None,
    }
}

/// A program that runs supervised.
pub struct Supervised {
    pub child: Child,
    /// Where its calls arrive.
    pub listener: OwnedFd,
    /// A call that has arrived while it was started.
    pub asked: Option<Asked>,
    /// The host gives it other addresses each time.
    pub is_random: bool,
}

/// How often a thread looks whether the program has started.
const LOOK: Duration = Duration::from_millis(10);

/// Starts a program under the filter. The filter holds its start, too: `executes` is called for each such call.
///
/// # Errors
/// If it cannot be started, or the host lets nobody supervise.
pub fn start(
    command: &mut Command,
    mut executes: impl FnMut(&Asked) + Send,
) -> io::Result<Supervised> {
    let (ours, theirs) = UnixStream::pair()?;
    let program = program();
    let channel = theirs.as_raw_fd();
    // SAFETY: what runs between fork and exec only makes system calls.
    unsafe {
        command.pre_exec(move || enter(&program, channel));
    }
    let has_started = AtomicBool::new(false);
    thread::scope(|scope| {
        // This thread waits for the start, and the child dies with it (`PR_SET_PDEATHSIG`): another one lets it start.
        let supervision = scope.spawn(|| {
            let (listener, is_random) = receive(ours.as_fd())?;
            // With an error the listener is closed, and the start fails.
            let asked = until_started(&listener, &has_started, &mut executes)?;
            Ok::<_, io::Error>((listener, is_random, asked))
        });
        let child = command.spawn();
        drop(theirs);
        has_started.store(true, Ordering::SeqCst);
        let supervised = supervision.join().expect("it does not panic");
        let child = child?;
        let (listener, is_random, asked) = supervised?;
        Ok(Supervised {
            child,
            listener,
            asked,
            is_random,
        })
    })
}

/// Lets a program start; answers with its first other call, if that arrives before this ends.
fn until_started(
    listener: &OwnedFd,
    has_started: &AtomicBool,
    executes: &mut impl FnMut(&Asked),
) -> io::Result<Option<Asked>> {
    loop {
        // Nothing that is asked before the start comes after this look.
        let is_last = has_started.load(Ordering::SeqCst);
        match notify::next(listener, LOOK)? {
            Next::Asked(asked) if arch::call(asked.number) == Some(Call::Execute) => {
                executes(&asked);
                asked.answer(listener, Reply::Untouched);
            }
            Next::Asked(asked) => return Ok(Some(asked)),
            Next::Nothing if !is_last => {}
            Next::Nothing | Next::Gone => return Ok(None),
        }
    }
}

fn checked(status: c_long) -> io::Result<c_long> {
    match status {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

/// Runs in the new process.
///
/// # Safety
/// Only between fork and exec.
unsafe fn enter(program: &[sock_filter], channel: RawFd) -> io::Result<()> {
    // SAFETY: system calls with valid arguments.
    unsafe {
        // It does not outlive who answers it, and Ctrl-C reaches it through us alone.
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).into())?;
        checked(libc::setpgid(0, 0).into())?;
        // Addresses are the same each time: some loaders put them into maps. Where the host refuses that, they differ.
        let is_random = libc::personality(libc::ADDR_NO_RANDOMIZE as c_ulong) < 0;
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr().cast_mut(),
        };
        let listener = checked(libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            NEW_LISTENER,
            &raw const filter,
        ))?;
        let listener = BorrowedFd::borrow_raw(listener as RawFd);
        send(BorrowedFd::borrow_raw(channel), listener, is_random)
    }
}

/// Sends a descriptor and a word. Allocates nothing: it runs between fork and exec.
fn send(channel: BorrowedFd<'_>, descriptor: BorrowedFd<'_>, word: bool) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        channel,
        &[IoSlice::new(&[u8::from(word)])],
        &mut control,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// Receives a descriptor and a word.
fn receive(channel: BorrowedFd<'_>) -> io::Result<(OwnedFd, bool)> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(channel, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let descriptor =
        descriptor.ok_or_else(|| io::Error::other("the new process has sent no descriptor"))?;
    Ok((descriptor, byte[0] != 0))
}
