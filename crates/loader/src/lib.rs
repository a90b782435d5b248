//! Runs a scheduler's own loader, unmodified and without privileges, and takes down what it loads.
//!
//! The loader is a child whose calls of bpf(2), and the few others by which it looks at its machine and kernel, wait for an answer
//! from here (seccomp user notification). It sees the simulated machine and the virtual kernel's types. Programs that it runs before it
//! attaches are run by a [`World`]. With the scheduler attached the [`Transcript`] is complete, and the loader is ended.

mod arch;
mod attr;
mod error;
mod filter;
mod kernel;
mod notify;
mod paths;
mod shared;
mod tree;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schedlab_bpf::originals;
use schedlab_bpf::transcript::{Transcript, World};

use arch::Call;
pub use error::RecordError;
use kernel::{Failure, Kernel, Object, token};
use notify::{Asked, Next, Reply};
use paths::Paths;
pub use tree::Facts;
use tree::Tree;

/// A loader to run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Its working folder, the only one in which it may write.
    pub folder: PathBuf,
    /// So long it may do nothing that is seen here.
    pub patience: Duration,
}

/// Lines of its output that are kept.
const LINES_KEPT: usize = 40;

/// Runs a loader until it has attached its scheduler.
///
/// # Errors
/// If it does not come that far.
pub fn record(
    order: &Order,
    facts: &Facts<'_>,
    world: &mut dyn World,
) -> Result<Transcript, RecordError> {
    let program = order.program.to_string_lossy().into_owned();
    let tree = Tree::new(facts).map_err(RecordError::Host)?;
    let mut command = Command::new(&order.program);
    command
        .args(&order.arguments)
        .current_dir(&order.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let started = filter::start(&mut command).map_err(|reason| match reason.raw_os_error() {
        Some(libc::EINVAL | libc::EPERM | libc::ENOSYS | libc::EBUSY) => RecordError::Host(reason),
        _ => RecordError::Start {
            program: program.clone(),
            reason,
        },
    })?;
    let mut loader = Loader {
        child: started.child,
        listener: started.listener,
        said: Said::default(),
        readers: Vec::new(),
    };
    loader.listen();
    let folder = order
        .folder
        .canonicalize()
        .unwrap_or_else(|_| order.folder.clone());
    let nr_cpus = facts.machine.topology.nr_cpus();
    let mut supervisor = Supervisor {
        paths: Paths {
            tree,
            folder,
            objects: RefCell::default(),
        },
        kernel: Kernel::new(facts.types, nr_cpus, world),
        release: facts.release.to_owned(),
        nr_cpus,
    };
    let end = supervisor.serve(&loader.listener, order.patience)?;
    let how = match end {
        End::Attached => {
            drop(loader);
            supervisor.kernel.gather().map_err(RecordError::Host)?;
            return Ok(supervisor.transcript());
        }
        End::Idle => {
            return Err(RecordError::Idle {
                program,
                seconds: order.patience.as_secs(),
                said: loader.end().1,
            });
        }
        End::Gone => loader.end(),
    };
    let (status, said) = how;
    Err(RecordError::Ended {
        program,
        how: status.map_or_else(|| "killed".to_owned(), |status| status.to_string()),
        said,
    })
}

/// The last lines that the loader has printed.
type Lines = Arc<Mutex<Vec<String>>>;

#[derive(Default)]
struct Said(Lines);

impl Said {
    /// Returns the addition to an error: the line that seems to say why.
    fn text(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tells = |line: &&String| {
            let line = line.to_lowercase();
            ["error", "fail", "not found", "cannot", "panicked", "unable"]
                .iter()
                .any(|word| line.contains(word))
        };
        // Lines of libbpf are warnings, unless it was asked for more; a member that is zero needs no warning.
        let is_cause =
            |line: &&String| line.contains("libbpf: ") && !line.contains("skipping it as");
        let of_libbpf = lines.iter().find(is_cause);
        let cause = of_libbpf
            .or_else(|| lines.iter().find(tells))
            .or(lines.last());
        cause.map_or(String::new(), |line| {
            format!("; it printed: {}", line.trim())
        })
    }
}

/// The child.
struct Loader {
    child: Child,
    listener: OwnedFd,
    said: Said,
    readers: Vec<JoinHandle<()>>,
}

impl Loader {
    /// Reads its output, which would fill its pipe.
    fn listen(&mut self) {
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            self.child.stdout.take().map(|stream| Box::new(stream) as _),
            self.child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let lines = Arc::clone(&self.said.0);
            self.readers.push(std::thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line).into_owned();
                    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                    if lines.len() == LINES_KEPT {
                        lines.remove(0);
                    }
                    if !line.trim().is_empty() {
                        lines.push(line);
                    }
                }
            }));
        }
    }

    /// Ends it, and all that it has started; answers how it ended by itself, and with what words.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        let status = self.child.try_wait().ok().flatten();
        // SAFETY: the process group is the child's own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let status = status.or_else(|| self.child.wait().ok());
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        (status, self.said.text())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why nobody is served any more.
enum End {
    Attached,
    Gone,
    Idle,
}

struct Supervisor<'w> {
    paths: Paths,
    kernel: Kernel<'w>,
    release: String,
    nr_cpus: usize,
}

impl Supervisor<'_> {
    fn serve(&mut self, listener: &OwnedFd, patience: Duration) -> Result<End, RecordError> {
        let mut last = Instant::now();
        loop {
            match notify::next(listener, Duration::from_millis(200)).map_err(RecordError::Host)? {
                Next::Gone => return Ok(End::Gone),
                Next::Nothing if last.elapsed() > patience => return Ok(End::Idle),
                Next::Nothing => {}
                Next::Asked(asked) => {
                    last = Instant::now();
                    let reply = match self.answer(&asked) {
                        Ok(reply) => reply,
                        Err(Failure::Errno(number)) => Reply::Error(number),
                        Err(Failure::Fatal(error)) => return Err(error),
                    };
                    if self.kernel.attached {
                        return Ok(End::Attached);
                    }
                    asked.answer(listener, reply);
                }
            }
        }
    }

    /// Everything that was asked, with the objects that the loader has its programs from.
    fn transcript(self) -> Transcript {
        let mut files = self.paths.objects.take();
        files.extend(self.kernel.programs);
        let mut transcript = self.kernel.transcript;
        for file in files.iter().filter_map(|path| std::fs::read(path).ok()) {
            let found = originals::find(&file).into_iter();
            transcript.objects.extend(found.map(<[u8]>::to_vec));
        }
        transcript
    }

    fn answer(&mut self, asked: &Asked) -> Result<Reply, Failure> {
        let Some(call) = arch::call(asked.number) else {
            return Ok(Reply::Untouched);
        };
        match call {
            Call::Bpf => self.kernel.bpf(asked),
            Call::Uname => {
                asked.memory()?.write(asked.arguments[0], &self.uname())?;
                Ok(Reply::Value(0))
            }
            Call::Affinity => self.affinity(asked),
            Call::SetAffinity | Call::Limit => Ok(Reply::Value(0)),
            Call::PerfEventOpen => Ok(Reply::Descriptor(token("event", 0, 0)?.into(), true)),
            Call::Ioctl => Ok(self.of_ours(asked, 0)),
            // It announces nothing.
            Call::EpollCtl => Ok(self.of_ours(asked, 2)),
            call => Ok(self.paths.answer(call, asked)?),
        }
    }

    /// Whatever is asked of one of our objects succeeds.
    fn of_ours(&self, asked: &Asked, argument: usize) -> Reply {
        let name = asked.descriptor_name(asked.arguments[argument] as i64);
        match name.is_some_and(|name| Object::of(&name).is_some()) {
            true => Reply::Value(0),
            false => Reply::Untouched,
        }
    }

    /// `struct new_utsname`.
    fn uname(&self) -> Vec<u8> {
        const FIELD: usize = 65;
        let machine = std::env::consts::ARCH;
        let fields = [
            "Linux",
            "schedlab",
            &self.release,
            "#1 SMP PREEMPT_DYNAMIC schedlab",
            machine,
            "(none)",
        ];
        let mut bytes = vec![0; FIELD * fields.len()];
        for (field, text) in bytes.chunks_exact_mut(FIELD).zip(fields) {
            field[..text.len()].copy_from_slice(text.as_bytes());
        }
        bytes
    }

    fn affinity(&self, asked: &Asked) -> Result<Reply, Failure> {
        let [_, room, at, ..] = asked.arguments;
        let bytes = self.nr_cpus.div_ceil(64) * 8;
        if (room as usize) < bytes {
            return Err(Failure::Errno(libc::EINVAL));
        }
        let mut mask = vec![0u8; bytes];
        for cpu in 0..self.nr_cpus {
            mask[cpu / 8] |= 1 << (cpu % 8);
        }
        asked.memory()?.write(at, &mask)?;
        Ok(Reply::Value(bytes as i64))
    }
}
