//! Every policy under real programs in a real kernel, a minute each: `make soak`.
//!
//! For each policy and number of CPUs a virtual machine is booted and the policy loaded. The programs run
//! one after another, then all at once; a program counts only if the kernel called `ops.dispatch()`
//! during it. Then the policy is unloaded, loaded again by another process, and that process is
//! killed: the kernel's own scheduler must be back each time, and work. The kernel's watchdog ejects a
//! policy that leaves a task waiting for 30 s.
//!
//! One line for each policy and number of CPUs goes into the file of results as it is known. Lines of the
//! same policy (its compiled bytes) and the same length are not run again.

#[path = "../../tests/inside/calls.rs"]
mod calls;
mod guest;
mod programs;
#[path = "../../tests/inside/programs.rs"]
mod small_programs;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use schedlab_kernel::bpf_policy::{self, POLICIES};
use schedlab_kernel::kernel_log::complaints;
use schedlab_kernel::vm::{Stream, Vm};

/// Every policy under real programs in a real kernel
#[derive(Parser)]
#[command(name = "soak")]
struct Arguments {
    /// Length of each run, the programs together
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(20..=86_400))]
    seconds: u64,
    /// Numbers of virtual CPUs
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2,8")]
    cpus: Vec<u32>,
    /// Policies [default: all]
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    policies: Vec<String>,
    /// File of results, to which lines are added
    #[arg(long, value_name = "FILE", default_value = "out/soak.tsv")]
    results: PathBuf,
    /// Forget earlier results of what is asked for
    #[arg(long)]
    again: bool,
    /// Run nothing; print the calls of the policies' present builds as docs/real-kernel/soak.csv has them
    #[arg(long)]
    csv: bool,
    /// The program `schedlab`, for the real chat
    #[arg(long, value_name = "FILE")]
    schedlab: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let inside = match arguments.first().map(String::as_str) {
        Some(guest::MARK) => Some(guest::run(&arguments[1..])),
        Some(guest::HOLD) => Some(guest::hold(&arguments[1..])),
        Some(programs::MARK) => Some(programs::run(&arguments[1..])),
        Some(small_programs::MARK) => {
            let known = small_programs::run(&arguments[1..]);
            Some(known.ok_or_else(|| "there is no such program".to_owned()))
        }
        _ => None,
    };
    let result = inside.map_or_else(|| soak(&Arguments::parse()), |done| done.map(|()| true));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            println!("{why}");
            ExitCode::from(2)
        }
    }
}

/// A run: a policy on so many CPUs.
type Key = (String, u32);

/// A line of the file of results.
struct Line {
    fingerprint: String,
    seconds: u64,
    /// `ok`, or what went wrong.
    result: String,
    /// The programs with the calls during each.
    calls: String,
}

const OK: &str = "ok";

fn soak(arguments: &Arguments) -> Result<bool, String> {
    let policies = chosen(&arguments.policies)?;
    if let Some(folder) = arguments.results.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let schedlab = arguments
        .schedlab
        .canonicalize()
        .map_err(|error| format!("{}: {error}", arguments.schedlab.display()))?;
    let known = read(&arguments.results)?;
    if arguments.csv {
        print!("{}", csv(&known, &policies));
        return Ok(true);
    }
    // A run that was killed may have left half a line.
    if fs::read(&arguments.results).is_ok_and(|bytes| bytes.last().is_some_and(|&b| b != b'\n')) {
        append(&arguments.results, "\n")?;
    }
    let mut lines = BTreeMap::new();
    let mut to_run = Vec::new();
    for &cpus in &arguments.cpus {
        for (name, fingerprint) in &policies {
            let key = (name.clone(), cpus);
            let same = |line: &&Line| {
                line.fingerprint == *fingerprint && line.seconds == arguments.seconds
            };
            match known.get(&key).filter(same).filter(|_| !arguments.again) {
                Some(line) => {
                    println!("{name} on {cpus} CPUs: {} (earlier)", line.result);
                    lines.insert(key, line.result.clone());
                }
                None => to_run.push((key, fingerprint)),
            }
        }
    }
    let began = Instant::now();
    for (done, (key, fingerprint)) in to_run.iter().enumerate() {
        // The time is unknown before the first run; booting and loading take about as long as they take here.
        let each = match done {
            0 => Duration::from_secs(arguments.seconds + 60),
            _ => began.elapsed() / done as u32,
        };
        let left = each * (to_run.len() - done) as u32;
        println!(
            "[{}/{}] {} on {} CPUs; about {} min left",
            done + 1,
            to_run.len(),
            key.0,
            key.1,
            left.as_secs().div_ceil(60)
        );
        let log = arguments
            .results
            .with_file_name(format!("soak-{}-{}.log", key.0, key.1));
        let (result, calls) = one(key, arguments.seconds, &schedlab, &log)?;
        println!("    {result}");
        let line = format!(
            "{}\t{}\t{}\t{fingerprint}\t{result}\t{calls}\n",
            key.0, key.1, arguments.seconds
        );
        append(&arguments.results, &line)?;
        lines.insert(key.clone(), result);
    }
    println!("\n{}", table(&lines, &arguments.cpus));
    Ok(lines.values().all(|result| result == OK))
}

/// Names and fingerprints of the policies that are asked for.
fn chosen(names: &[String]) -> Result<Vec<(String, String)>, String> {
    for name in names {
        if !POLICIES.iter().any(|policy| policy.name == name) {
            return Err(format!("there is no policy {name}"));
        }
    }
    POLICIES
        .iter()
        .filter(|policy| names.is_empty() || names.iter().any(|name| name == policy.name))
        .map(|policy| {
            let object = bpf_policy::resolve(policy.name).map_err(|error| error.to_string())?;
            Ok((policy.name.to_owned(), fingerprint(&object.bytes)))
        })
        .collect()
}

/// FNV-1a: distinguishes builds of a policy.
fn fingerprint(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// One policy in one virtual machine: what came of it, and the calls during each program. Where it fails,
/// all that was said goes into `log`, the kernel's dump of an ejection included.
fn one(
    (name, cpus): &Key,
    seconds: u64,
    schedlab: &Path,
    log: &Path,
) -> Result<(String, String), String> {
    let vm = Vm {
        cpus: *cpus,
        // A virtual machine whose CPUs take turns is slower than its clock.
        timeout: Duration::from_secs(4 * seconds + 300),
        ..Vm::default()
    };
    let program = std::env::current_exe().expect("a running program has a path");
    let mut command = vec![program.into_os_string(), OsString::from(guest::MARK)];
    command.extend([name.into(), seconds.to_string().into(), schedlab.into()]);
    let (mut said, mut all) = (String::new(), String::new());
    let mut listen = |stream: Stream, bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        all.push_str(&text);
        if stream == Stream::Stdout {
            said.push_str(&text);
        }
    };
    let end = vm.run(&command, &|note| println!("    {note}"), &mut listen);
    let calls: Vec<&str> = said
        .lines()
        .filter_map(|line| line.strip_prefix(guest::CALLS))
        .collect();
    let last = said.lines().last().unwrap_or("it said nothing");
    let result = match end {
        Ok((_, text)) if !complaints(&text).is_empty() => {
            all.push_str(&text);
            format!("the kernel complains: {}", complaints(&text)[0])
        }
        Ok((0, _)) => OK.to_owned(),
        Ok((_, _)) => last.to_owned(),
        Err(error) => format!("{error}; last: {last}"),
    };
    let one_line = |text: &str| text.replace(['\t', '\n'], " ");
    if result != OK {
        fs::write(log, &all).map_err(|error| format!("{}: {error}", log.display()))?;
    }
    Ok((one_line(&result), one_line(&calls.join(", "))))
}

fn append(path: &Path, line: &str) -> Result<(), String> {
    let file = OpenOptions::new().append(true).create(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The last line of each policy and number of CPUs. A line that was not written whole is left out.
fn read(path: &Path) -> Result<BTreeMap<Key, Line>, String> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        other => other.map_err(|error| format!("{}: {error}", path.display()))?,
    };
    let mut lines = BTreeMap::new();
    for text in text.lines() {
        let columns: Vec<&str> = text.split('\t').collect();
        let [name, cpus, seconds, fingerprint, result, calls] = columns[..] else {
            continue;
        };
        let (Ok(cpus), Ok(seconds)) = (cpus.parse(), seconds.parse()) else {
            continue;
        };
        let line = Line {
            fingerprint: fingerprint.to_owned(),
            seconds,
            result: result.to_owned(),
            calls: calls.to_owned(),
        };
        // Half a line has no calls.
        if line.result != OK || !line.calls.is_empty() {
            lines.insert((name.to_owned(), cpus), line);
        }
    }
    Ok(lines)
}

/// Returns a row for each program of each passed run of a policy's present build. Reports the runs that it leaves out.
fn csv(known: &BTreeMap<Key, Line>, policies: &[(String, String)]) -> String {
    let mut text = "policy,cpus,seconds,program,calls\n".to_owned();
    for ((name, cpus), line) in known {
        let is_present = |(policy, fingerprint): &(String, String)| {
            policy == name && *fingerprint == line.fingerprint
        };
        if !policies.iter().any(is_present) {
            eprintln!("{name} on {cpus} CPUs: left out, the policy has changed since");
            continue;
        }
        if line.result != OK {
            eprintln!("{name} on {cpus} CPUs: left out, {}", line.result);
            continue;
        }
        for (program, calls) in line
            .calls
            .split(", ")
            .filter_map(|part| part.rsplit_once(' '))
        {
            let _ = writeln!(text, "{name},{cpus},{},{program},{calls}", line.seconds);
        }
    }
    text
}

fn table(lines: &BTreeMap<Key, String>, cpus: &[u32]) -> String {
    let names: Vec<&String> = {
        let mut names: Vec<_> = lines.keys().map(|(name, _)| name).collect();
        names.dedup();
        names
    };
    let wide = names.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut text = format!("{:wide$}", "");
    for cpus in cpus {
        let _ = write!(text, "  {:>6}", format!("{cpus} CPUs"));
    }
    text.push('\n');
    let mut faults = String::new();
    for name in names {
        let _ = write!(text, "{name:wide$}");
        for &cpus in cpus {
            let key = (name.clone(), cpus);
            let word = match lines.get(&key).map(String::as_str) {
                Some(OK) => OK,
                Some(fault) => {
                    let _ = writeln!(faults, "{name} on {cpus} CPUs: {fault}");
                    "FAILED"
                }
                None => "-",
            };
            let _ = write!(text, "  {word:>6}");
        }
        text.push('\n');
    }
    text + &faults
}
