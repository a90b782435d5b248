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
mod seen;
mod shared;
mod tree;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use schedlab_bpf::transcript::{Transcript, World};
use serde::{Deserialize, Serialize};

use arch::Call;
use attr::command;
pub use error::RecordError;
use kernel::{BpfState, Descriptor, Failure, token};
use notify::{Asked, Next, Reply};
use paths::Paths;
pub use seen::{Question, Seen};
pub use tree::Facts;
use tree::Tree;

/// A loader to run.
#[derive(Clone, Debug)]
pub struct Order {
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// Its working folder, the only one in which it may write.
    pub folder: PathBuf,
    /// An empty folder for the virtual kernel's files, which the caller removes.
    pub files: PathBuf,
    pub patience: Patience,
    /// Whether the caller is about to end: the loader is given up then.
    pub is_ending: fn() -> bool,
}

/// How long a loader may take, in time of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// So long it may ask for nothing and use no CPU.
    pub idle: Duration,
    /// So long it may take until it has attached its scheduler.
    pub whole: Duration,
}

/// The work of a loader.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub transcript: Transcript,
    /// Notes for its user.
    pub notes: Vec<String>,
    /// Its questions to the host.
    pub seen: Seen,
}

/// Variables of the environment by which a shell keeps count of itself: a loader does not see them.
const OF_SHELL: [&str; 3] = ["_", "OLDPWD", "SHLVL"];

/// Returns what a loader sees of this process: its environment and its user.
pub fn surroundings() -> Vec<(Vec<u8>, Vec<u8>)> {
    let variables = std::env::vars_os().filter(|(name, _)| OF_SHELL.iter().all(|own| name != own));
    let bytes = OsString::into_vec;
    let mut all: Vec<_> = variables
        .map(|(name, value)| (bytes(name), bytes(value)))
        .collect();
    all.sort();
    // SAFETY: a system call without arguments.
    let user = unsafe { libc::geteuid() };
    all.push((Vec::new(), user.to_string().into_bytes()));
    all
}

/// Returns the file of a program as a shell finds it; a name that is not found as it is.
pub fn find(program: &OsStr) -> PathBuf {
    which::which(program).unwrap_or_else(|_| program.into())
}

/// How long the output of a loader that was ended is waited for: a process that it has left behind may hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(1);

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
) -> Result<Record, RecordError> {
    let program = order.program.to_string_lossy().into_owned();
    let tree = Tree::new(facts, &order.files).map_err(RecordError::Host)?;
    let mut command = Command::new(find(&order.program));
    for name in OF_SHELL {
        command.env_remove(name);
    }
    command
        .arg0(&order.program)
        .args(&order.arguments)
        .current_dir(&order.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let folder = order
        .folder
        .canonicalize()
        .unwrap_or_else(|_| order.folder.clone());
    let mut paths = Paths {
        tree,
        folder,
        found: RefCell::default(),
        seen: RefCell::default(),
    };
    let within = &mut paths;
    // A path that cannot be read is none for the host either.
    let executes = move |asked: &Asked| drop(within.answer(Call::Execute, asked));
    let started =
        filter::start(&mut command, executes).map_err(|reason| match reason.raw_os_error() {
            Some(libc::EINVAL | libc::EPERM | libc::ENOSYS | libc::EBUSY) => {
                RecordError::Host(reason)
            }
            _ => RecordError::Start {
                program: program.clone(),
                reason,
            },
        })?;
    let is_random = started.is_random;
    let mut loader = Loader {
        child: started.child,
        listener: started.listener,
        asked: started.asked,
        said: Said::default(),
        open: None,
    };
    loader.listen();
    let nr_cpus = facts.machine.topology.nr_cpus();
    let mut supervisor = Supervisor {
        paths,
        kernel: BpfState::new(facts.types, nr_cpus, world),
        release: facts.release.to_owned(),
        nr_cpus,
    };
    let (status, said) = match supervisor.serve(&mut loader, order)? {
        End::Attached => {
            drop(loader);
            supervisor.kernel.gather().map_err(RecordError::Host)?;
            return Ok(supervisor.record(is_random));
        }
        End::Idle => {
            return Err(RecordError::Idle {
                program,
                seconds: order.patience.idle.as_secs(),
                said: loader.end().1,
            });
        }
        End::Late => {
            return Err(RecordError::Late {
                program,
                seconds: order.patience.whole.as_secs(),
                said: loader.end().1,
            });
        }
        End::Ending => return Err(RecordError::Interrupted { program }),
        End::Gone => loader.end(),
    };
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
    /// A call that waits for its answer since the start.
    asked: Option<Asked>,
    said: Said,
    /// Is disconnected where both streams have come to their ends.
    open: Option<mpsc::Receiver<()>>,
}

impl Loader {
    /// Reads its output, which would fill its pipe.
    fn listen(&mut self) {
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            self.child.stdout.take().map(|stream| Box::new(stream) as _),
            self.child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        let (sender, receiver) = mpsc::channel();
        self.open = Some(receiver);
        for stream in streams.into_iter().flatten() {
            let lines = Arc::clone(&self.said.0);
            let open = sender.clone();
            std::thread::spawn(move || {
                let _open: mpsc::Sender<()> = open;
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
            });
        }
    }

    /// The time of CPUs that its processes have used, in ticks; those that it waited for are in it.
    fn used(&self) -> u64 {
        let group = self.child.id().to_string();
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let times = processes.filter_map(|process| {
            let name = process.file_name();
            name.to_str()?.parse::<u32>().ok()?;
            let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
            // The name of a program may have spaces and brackets (proc_pid_stat(5)).
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            let is_ours = *fields.get(2)? == group;
            let times = fields.get(11..15)?.iter();
            is_ours.then(|| {
                times
                    .filter_map(|time| time.parse::<u64>().ok())
                    .sum::<u64>()
            })
        });
        times.sum()
    }

    /// Ends it, and all that it has started; answers how it ended by itself, and with what words.
    fn end(&mut self) -> (Option<ExitStatus>, String) {
        let status = self.child.try_wait().ok().flatten();
        // SAFETY: the process group is the child's own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let status = status.or_else(|| self.child.wait().ok());
        if let Some(open) = self.open.take() {
            let _ = open.recv_timeout(LAST_WORDS);
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
    Late,
    /// The caller ends.
    Ending,
}

struct Supervisor<'w> {
    paths: Paths,
    kernel: BpfState<'w>,
    release: String,
    nr_cpus: usize,
}

impl Supervisor<'_> {
    fn serve(&mut self, loader: &mut Loader, order: &Order) -> Result<End, RecordError> {
        let began = Instant::now();
        let (mut last, mut looked, mut used) = (began, began, 0);
        loop {
            if (order.is_ending)() {
                return Ok(End::Ending);
            }
            if began.elapsed() > order.patience.whole {
                return Ok(End::Late);
            }
            let listener = &loader.listener;
            let next = match loader.asked.take() {
                Some(asked) => Next::Asked(asked),
                None => {
                    notify::next(listener, Duration::from_millis(100)).map_err(RecordError::Host)?
                }
            };
            match next {
                Next::Gone => return Ok(End::Gone),
                // One that computes asks for nothing.
                Next::Nothing if looked.max(last).elapsed() > order.patience.idle / 8 => {
                    looked = Instant::now();
                    let now = loader.used();
                    // With a process that ends, its time goes, too.
                    if now != used {
                        (last, used) = (looked, now);
                    } else if last.elapsed() > order.patience.idle {
                        return Ok(End::Idle);
                    }
                }
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
    fn record(self, is_random: bool) -> Record {
        let (found, mut seen) = (self.paths.found.take(), self.paths.seen.take());
        if is_random {
            seen.doubt("its addresses differ from run to run".to_owned());
        }
        let mut transcript = self.kernel.transcript;
        transcript.objects = found.objects;
        let mut notes = found.notes;
        if is_random {
            notes.push(
                "this host refuses personality(2): addresses of the loader differ from run to run, and so may what it puts into maps"
                    .to_owned(),
            );
        }
        Record {
            transcript,
            notes,
            seen,
        }
    }

    fn answer(&mut self, asked: &Asked) -> Result<Reply, Failure> {
        let Some(call) = arch::call(asked.number) else {
            return Ok(Reply::Untouched);
        };
        match call {
            Call::Bpf => {
                if asked.arguments[0] == command::BTF_LOAD {
                    self.paths.look_at_program(asked);
                }
                self.kernel.bpf(asked)
            }
            Call::Uname => {
                asked.memory()?.write(asked.arguments[0], &self.uname())?;
                Ok(Reply::Value(0))
            }
            Call::Affinity => self.affinity(asked),
            Call::Sysinfo => {
                self.paths.seen.borrow_mut().note(Question::Memory);
                Ok(Reply::Untouched)
            }
            Call::SetAffinity | Call::Limit => Ok(Reply::Value(0)),
            // Programs have to do without where a kernel is built without it.
            Call::Refused => Ok(Reply::Error(libc::ENOSYS)),
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
        match name.is_some_and(|name| Descriptor::of(&name).is_some()) {
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
