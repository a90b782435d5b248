//! Small programs whose switches are known beforehand; this test program runs itself as them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity, sched_yield};
use nix::unistd::Pid;

/// First argument of this program as one of the programs.
pub const MARK: &str = "as-a-program";

pub fn run(arguments: &[String]) -> Option<()> {
    let number = || arguments.get(1)?.parse::<u32>().ok();
    match arguments.first()?.as_str() {
        "compute" => compute(Duration::from_millis(number()?.into())),
        "pingpong" => pingpong(number()?),
        "yielders" => yielders(number()?, arguments.get(2)?.parse().ok()?),
        "fail" => std::process::exit(3),
        "sleep" => thread::sleep(Duration::from_secs(number()?.into())),
        _ => return None,
    }
    Some(())
}

fn on_cpu_0() {
    let mut cpus = CpuSet::new();
    cpus.set(0).expect("CPU 0 exists");
    sched_setaffinity(Pid::from_raw(0), &cpus).expect("CPU 0 is allowed");
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

/// Threads on one CPU that only yield.
fn yielders(threads: u32, yields: u32) {
    on_cpu_0();
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..yields {
                    sched_yield().expect("yielding cannot fail");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("yielding does not panic");
    }
}
