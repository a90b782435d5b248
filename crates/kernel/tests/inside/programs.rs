//! Small programs whose switches are known beforehand; this test program runs itself as them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity, sched_yield};

/// First argument of this program as one of the programs.
pub const MARK: &str = "as-a-program";

pub fn run(arguments: &[String]) -> Option<()> {
    let number = || arguments.get(1)?.parse::<u32>().ok();
    match arguments.first()?.as_str() {
        "compute" => compute(Duration::from_millis(number()?.into())),
        "pingpong" => pingpong(number()?),
        "yielders" => yielders(number()?, arguments.get(2)?.parse().ok()?),
        "hogs" => hogs(
            Duration::from_millis(number()?.into()),
            arguments.get(2)?.parse().ok()?,
        ),
        "shuffle" => shuffle(Duration::from_millis(number()?.into())),
        "storm" => storm(Duration::from_millis(number()?.into())),
        "leaver" => leaver(Duration::from_millis(number()?.into())),
        "load" => load(arguments.get(1)?),
        "load_on_cpu_0" => {
            on_cpu_0();
            load(arguments.get(1)?);
        }
        "fail" => std::process::exit(3),
        "sleep" => thread::sleep(Duration::from_secs(number()?.into())),
        _ => return None,
    }
    Some(())
}

fn on_cpu_0() {
    on(0..1);
}

/// The thread that calls may run on these CPUs.
pub fn on(cpus: std::ops::Range<usize>) {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(cpu);
    }
    sched_setaffinity(None, &set).expect("the CPUs are allowed");
}

/// More threads than CPUs that compute and sleep for a while.
pub fn compute(time: Duration) {
    let threads: Vec<_> = (0..16)
        .map(|_| {
            thread::spawn(move || {
                let mut rounds = 0_u64;
                let end = Instant::now() + time;
                while Instant::now() < end {
                    for _ in 0..20_000 {
                        rounds = std::hint::black_box(rounds + 1);
                    }
                    thread::sleep(Duration::from_micros(200));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("computing does not panic");
    }
}

/// Two threads that share one CPU and never sleep; the second one has the nice level.
fn hogs(time: Duration, nice: i32) {
    on_cpu_0();
    let end = Instant::now() + time;
    let threads: Vec<_> = [0, nice]
        .into_iter()
        .map(|nice| {
            thread::spawn(move || {
                setpriority_process(Some(gettid()), nice)
                    .expect("a worse nice level is anybody's right");
                let mut rounds = 0_u64;
                while Instant::now() < end {
                    rounds = std::hint::black_box(rounds + 1);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("computing does not panic");
    }
}

/// Threads that compute and sleep while another thread changes their allowed CPUs and their nice levels.
fn shuffle(time: Duration) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let end = Instant::now() + time;
    let (tell, told) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..2 * cpus)
        .map(|number| {
            let tell = tell.clone();
            thread::spawn(move || {
                tell.send(gettid()).expect("somebody listens");
                let mut rounds = 0_u64;
                while Instant::now() < end {
                    for _ in 0..20_000 {
                        rounds = std::hint::black_box(rounds + 1);
                    }
                    // Half of them never sleep.
                    if number % 2 == 0 {
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            })
        })
        .collect();
    let ids: Vec<Pid> = told.iter().take(threads.len()).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below
    };
    while Instant::now() < end {
        let id = ids[draw(ids.len())];
        let mut allowed = CpuSet::new();
        let first = draw(cpus);
        for cpu in first..=first + draw(cpus) {
            allowed.set(cpu % cpus);
        }
        // Its thread may have ended meanwhile.
        let changed = sched_setaffinity(Some(id), &allowed);
        assert!(changed.is_ok() || Instant::now() >= end, "{changed:?}");
        let nice = draw(40) as i32 - 20;
        // Its thread may have ended here, too.
        let _ = setpriority_process(Some(id), nice);
        thread::sleep(Duration::from_millis(1));
    }
    for thread in threads {
        thread.join().expect("computing does not panic");
    }
}

/// Wave after wave of processes that begin, do next to nothing and end.
fn storm(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let wave: Vec<_> = (0..30)
            .map(|_| Command::new("/bin/true").spawn().expect("/bin/true starts"))
            .collect();
        for mut child in wave {
            let status = child.wait().expect("it is our child");
            assert!(status.success(), "{status}");
        }
    }
}

/// Two threads on one CPU pass a byte to and fro: each turn is one voluntary switch of each.
fn pingpong(turns: u32) {
    on_cpu_0();
    let (mut here, mut there) = UnixStream::pair().expect("sockets");
    let other = thread::spawn(move || {
        let mut byte = [0];
        for _ in 0..turns {
            there.read_exact(&mut byte).expect("the ball comes");
            there.write_all(&byte).expect("the ball goes");
        }
    });
    let mut byte = [1];
    for _ in 0..turns {
        here.write_all(&byte).expect("the ball goes");
        here.read_exact(&mut byte).expect("the ball comes");
    }
    other.join().expect("the other does not panic");
}

/// The first thread ends at once, the other one works on.
fn leaver(time: Duration) {
    thread::spawn(move || {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::hint::black_box(());
        }
        std::process::exit(0);
    });
    // SAFETY: ends this thread alone, of which nothing is needed any more.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

/// A workload's program.
fn load(workload: &str) {
    let ran = schedlab_programs::run(workload, &schedlab_programs::Options::default());
    let report = ran.expect("the workload runs");
    assert_eq!(report.end, schedlab_programs::End::Done);
}

/// Threads on one CPU that only yield.
fn yielders(threads: u32, yields: u32) {
    on_cpu_0();
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..yields {
                    sched_yield();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("yielding does not panic");
    }
}
