//! Workloads by the well-known programs that they are models of, where a distribution packages one.
//!
//! For two of the PARSEC applications, which no distribution packages, it is a program of the same kind; its time
//! is no figure of theirs, only something that their model's shape can be compared with.
//!
//! The program is started as it is, under any scheduler, and its own figure becomes the workload's score. An option
//! that the program does not have is refused, not ignored; a missing program is reported with its package.

mod program;
mod tpch;

use std::fs;
use std::io::{BufWriter, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use schedlab_workload::{Score, Workload, list};

pub use self::program::{Extra, SCALE_DEFAULT};
use self::program::{Given, Group, command, error, find, folder, output, refused};
use crate::{ProgramError, parse};

/// A workload that a well-known program is.
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// Its name here.
    pub workload: &'static str,
    /// The program and its arguments.
    pub program: &'static str,
    /// Options that the program has, too.
    options: &'static [&'static str],
    /// The required files, and the command that installs them.
    needs: &'static [(&'static str, &'static str)],
    /// Which of the extra arguments it takes.
    takes: &'static [&'static str],
    run: fn(&Given<'_>) -> Result<f64, ProgramError>,
}

/// All there are.
pub const ORIGINALS: &[Original] = &[
    Original {
        workload: "bodytrack",
        program: "x264 (a program of the same kind: a pool of threads over frames)",
        options: &["threads", "iterations"],
        needs: &[("x264", "apt-get install x264")],
        takes: &[],
        run: x264,
    },
    Original {
        workload: "ferret",
        program: "pbzip2 (a program of the same kind: reader, workers and writer with bounded queues)",
        options: &["threads", "iterations"],
        needs: &[("pbzip2", "apt-get install pbzip2")],
        takes: &[],
        run: pbzip2,
    },
    Original {
        workload: "hackbench",
        program: "perf bench sched messaging",
        options: &["groups", "loops", "pipe", "threads"],
        needs: &[("perf", "apt-get install linux-perf")],
        takes: &[],
        run: hackbench,
    },
    Original {
        workload: "httpd",
        program: "apache2 (prefork) under wrk",
        options: &["workers", "connections", "duration"],
        needs: &[
            ("apache2", "apt-get install apache2-bin"),
            ("wrk", "apt-get install wrk"),
        ],
        takes: &[],
        run: httpd,
    },
    Original {
        workload: "kbuild",
        program: "make",
        options: &["jobs"],
        needs: &[
            ("make", "apt-get install make"),
            ("gcc", "apt-get install gcc"),
        ],
        takes: &[SOURCE],
        run: kbuild,
    },
    Original {
        workload: "pipe",
        program: "perf bench sched pipe",
        options: &["loops", "threads"],
        needs: &[("perf", "apt-get install linux-perf")],
        takes: &[],
        run: pipe,
    },
    Original {
        workload: "tpch",
        program: "DuckDB with TPC-H's queries on data of tpchgen-cli",
        options: &["streams", "queries", "degree"],
        needs: &[
            ("tpchgen-cli", "pip install tpchgen-cli duckdb"),
            ("python3", "apt-get install python3"),
        ],
        takes: &[SOURCE, SCALE],
        run: tpch::run,
    },
];

const SOURCE: &str = "source";
const SCALE: &str = "scale";

/// The result of a run of an original.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Name of the workload.
    pub workload: String,
    /// The parameters that the program has, as they were in effect.
    pub params: Vec<(String, String)>,
    /// The meaning of the score.
    pub score: Score,
    /// The score, as the program reported it.
    pub value: f64,
    /// From beginning to end, what was made ready for the program included, in ns.
    pub makespan_ns: u64,
}

/// Returns the missing requirements of the programs, each with the command that installs it.
pub fn missing() -> Vec<(&'static str, &'static str)> {
    let mut missing: Vec<(&str, &str)> = Vec::new();
    for &(program, remedy) in ORIGINALS.iter().flat_map(|one| one.needs) {
        if find(program).is_none() && !missing.contains(&(program, remedy)) {
            missing.push((program, remedy));
        }
    }
    if find("python3").is_some() && tpch::python().is_err() {
        missing.push(("duckdb for python3", tpch::REMEDY));
    }
    missing
}

/// Runs the program that the workload `text` is a model of.
///
/// # Errors
/// If the workload has no such program, the program lacks an option that was given, is not installed, fails, does not
/// end within `limit`, or reports no figure.
pub fn run(text: &str, extra: Extra<'_>, limit: Duration) -> Result<Figure, ProgramError> {
    let workload = parse(text)?;
    let Some(original) = ORIGINALS.iter().find(|one| one.workload == workload.name) else {
        let known: Vec<&str> = ORIGINALS.iter().map(|one| one.workload).collect();
        return Err(refused(format!(
            "no packaged program is known for `{}`; there is one for {}",
            workload.name,
            known.join(", ")
        )));
    };
    original.refuse_others(&workload)?;
    for (given, name) in [
        (extra.source.is_some(), SOURCE),
        (extra.scale.is_some(), SCALE),
    ] {
        if given && !original.takes.contains(&name) {
            return Err(refused(format!("`{}` takes no --{name}", original.program)));
        }
    }
    for (program, remedy) in original.needs {
        if find(program).is_none() {
            return Err(refused(format!("`{program}` is not installed: {remedy}")));
        }
    }
    let started = Instant::now();
    let value = (original.run)(&Given {
        params: &workload.params,
        extra,
        deadline: started + limit,
    })?;
    let scale = original.takes.contains(&SCALE).then(|| {
        let scale = extra.scale.unwrap_or(SCALE_DEFAULT);
        (SCALE.to_owned(), scale.to_string())
    });
    Ok(Figure {
        workload: workload.name,
        params: workload
            .params
            .into_iter()
            .filter(|(name, _)| original.options.contains(&name.as_str()))
            .chain(scale)
            .collect(),
        score: workload.score,
        value,
        makespan_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
    })
}

impl Original {
    /// An option that differs from its default must be one that the program has.
    fn refuse_others(&self, workload: &Workload) -> Result<(), ProgramError> {
        let model = list().iter().find(|model| model.name == self.workload);
        for param in model.expect("originals are of models").all_params() {
            let plain = parse(self.workload)?.params;
            let of = |params: &[(String, String)]| {
                let found = params.iter().find(|(name, _)| name == param.name);
                found.map(|(_, value)| value.clone())
            };
            if !self.options.contains(&param.name) && of(&plain) != of(&workload.params) {
                return Err(refused(format!(
                    "`{}` has no option for `{}`; it has {}",
                    self.program,
                    param.name,
                    self.options.join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// Returns the number before `unit` in what `perf bench` prints.
fn figure(text: &str, unit: &str) -> Result<f64, ProgramError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .windows(2)
        .find(|pair| pair[1] == unit)
        .and_then(|pair| pair[0].parse().ok())
        .filter(|x: &f64| x.is_finite() && *x >= 0.0)
        .ok_or_else(|| error(format!("no figure in {unit} in `{}`", text.trim())))
}

fn perf_bench(given: &Given<'_>, arguments: &[&str]) -> Result<String, ProgramError> {
    let mut perf = command("perf");
    perf.args(["bench", "--format=default", "sched"])
        .args(arguments);
    Ok(output(&mut perf, given.deadline)?.0)
}

/// `perf bench` cuts times to whole ms: of a run as long as this, one is a hundredth.
const TOLD_IN_MS_LEAST_S: f64 = 0.1;

/// Returns the total time of `perf bench sched messaging`, in ns.
fn messaging_ns(text: &str) -> Result<f64, ProgramError> {
    let seconds = figure(text, "[sec]")?;
    if seconds < TOLD_IN_MS_LEAST_S {
        return Err(error(format!(
            "perf reports its time in whole ms, and {:.0} ms are too few for a figure: give more loops or groups",
            seconds * 1e3
        )));
    }
    Ok(seconds * 1e9)
}

/// Returns the time that perf measures once all its tasks are ready, in ns.
fn hackbench(given: &Given<'_>) -> Result<f64, ProgramError> {
    let mut arguments = vec![
        "messaging",
        "-g",
        given.text("groups"),
        "-l",
        given.text("loops"),
    ];
    if given.is("pipe") {
        arguments.push("-p");
    }
    if given.is("threads") {
        arguments.push("-t");
    }
    messaging_ns(&perf_bench(given, &arguments)?)
}

/// Returns the time of one round trip in ns, which perf reports with more digits than the total.
fn pipe(given: &Given<'_>) -> Result<f64, ProgramError> {
    let loops = given.text("loops");
    let mut arguments = vec!["pipe", "-l", loops];
    if given.is("threads") {
        arguments.push("-T");
    }
    Ok(figure(&perf_bench(given, &arguments)?, "usecs/op")? * 1e3)
}

/// Returns the time of `make -jN` in a source tree that was cleaned before, in ns.
fn kbuild(given: &Given<'_>) -> Result<f64, ProgramError> {
    let source = given.extra.source.ok_or_else(|| {
        refused("name a configured source tree with --source, for example the tree of `apt-get source linux` after `make defconfig`")
    })?;
    let make = |arguments: &[&str]| {
        let mut make = command("make");
        make.arg("-s").arg("-C").arg(source).args(arguments);
        output(&mut make, given.deadline)
    };
    make(&["clean"])?;
    let jobs = format!("-j{}", given.text("jobs"));
    let (_, took) = make(&[&jobs])?;
    Ok(took.as_nanos() as f64)
}

/// Size of a video's frame: brightness, and two planes of colour of a quarter each.
const FRAME: (usize, usize) = (320, 180);

/// Returns the time of encoding `iterations` frames of a pattern that moves, in ns.
fn x264(given: &Given<'_>) -> Result<f64, ProgramError> {
    let folder = folder("x264")?;
    let fail = |cause: std::io::Error| error(format!("{}: {cause}", folder.path().display()));
    let frames: usize = given.text("iterations").parse().expect("a count");
    let file = folder.path().join("pattern.yuv");
    let mut video = BufWriter::new(fs::File::create(&file).map_err(fail)?);
    let (width, height) = FRAME;
    let mut frame = vec![128_u8; width * height * 3 / 2];
    let mut noise = Noise(1);
    for number in 0..frames {
        for (at, pixel) in frame[..width * height].iter_mut().enumerate() {
            let (x, y) = (at % width + 3 * number, at / width + number);
            *pixel = ((x ^ y) as u8 & 0xf0) | (noise.next() as u8 & 0x0f);
        }
        video.write_all(&frame).map_err(fail)?;
    }
    video.flush().map_err(fail)?;
    let mut x264 = command("x264");
    x264.args([
        "--quiet",
        "--threads",
        given.text("threads"),
        "--output",
        "/dev/null",
    ]);
    x264.args(["--input-res", &format!("{width}x{height}"), "--fps", "25"]);
    timed(x264.arg(&file).stderr(Stdio::null()), given)
}

/// Returns the time of compressing `iterations` blocks of 100 kB of words, in ns.
fn pbzip2(given: &Given<'_>) -> Result<f64, ProgramError> {
    let folder = folder("pbzip2")?;
    let fail = |cause: std::io::Error| error(format!("{}: {cause}", folder.path().display()));
    let blocks: usize = given.text("iterations").parse().expect("a count");
    let file = folder.path().join("words");
    let mut words = BufWriter::new(fs::File::create(&file).map_err(fail)?);
    let mut noise = Noise(2);
    for _ in 0..blocks * 100_000 / 8 {
        // Eight bytes of few kinds, so that there is something to compress.
        let word = (noise.next() % 50_000) * 7_919;
        words
            .write_all(format!("{:07} ", word % 10_000_000).as_bytes())
            .map_err(fail)?;
    }
    words.flush().map_err(fail)?;
    let mut pbzip2 = command("pbzip2");
    pbzip2.arg(format!("-p{}", given.text("threads")));
    pbzip2.args(["-b1", "-1", "-k", "-q", "-f"]);
    timed(pbzip2.arg(&file), given)
}

fn timed(command: &mut Command, given: &Given<'_>) -> Result<f64, ProgramError> {
    let (_, took) = output(command, given.deadline)?;
    Ok(took.as_nanos() as f64)
}

/// Numbers for input files, the same each time (Steele, Lea, Flood: SplitMix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Returns a time as a workload shows it, in whole seconds as wrk takes it.
fn whole_seconds(text: &str) -> Option<u64> {
    text.strip_suffix('s')?.parse().ok().filter(|&n| n > 0)
}

/// Returns the requests a second that wrk counted.
fn requests_per_second(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Requests/sec:"))?;
    line.trim().parse().ok().filter(|x: &f64| *x > 0.0)
}

/// apache2 with its pre-forked workers on loopback and wrk against it, as one user and in a folder of its own.
fn httpd(given: &Given<'_>) -> Result<f64, ProgramError> {
    let seconds = whole_seconds(given.text("duration"))
        .ok_or_else(|| refused("wrk measures whole seconds: give duration as `5s`"))?;
    let folder = folder("httpd")?;
    let fail = |cause: std::io::Error| error(format!("{}: {cause}", folder.path().display()));
    // Bound for a moment to find a free port; apache2 binds it right after.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(fail)?
        .port();
    let modules = Path::new("/usr/lib/apache2/modules");
    let configuration = apache_configuration(folder.path(), modules, port, given.text("workers"));
    let file = folder.path().join("apache2.conf");
    fs::write(&file, configuration).map_err(fail)?;
    fs::write(folder.path().join("index.html"), "schedlab\n").map_err(fail)?;
    let mut apache = command("apache2");
    apache.arg("-DFOREGROUND").arg("-f").arg(&file);
    let mut server = Group::start(&mut apache, given.deadline)?;
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        if let Ok(Some(status)) = server.0.try_wait() {
            let log = fs::read_to_string(folder.path().join("error.log")).unwrap_or_default();
            let said = log.lines().last().unwrap_or_default().to_owned();
            return Err(error(format!("apache2: {status}: {said}")));
        }
        if Instant::now() >= given.deadline {
            return Err(error("apache2 does not answer"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut wrk = command("wrk");
    wrk.args([
        "-t1",
        "-c",
        given.text("connections"),
        "-d",
        &format!("{seconds}s"),
    ]);
    wrk.arg(format!("http://127.0.0.1:{port}/index.html"));
    let (text, _) = output(&mut wrk, given.deadline)?;
    requests_per_second(&text)
        .ok_or_else(|| error(format!("wrk reports no figure: {}", text.trim())))
}

/// Returns the smallest configuration that serves one file by pre-forked workers.
fn apache_configuration(folder: &Path, modules: &Path, port: u16, workers: &str) -> String {
    let (folder, modules) = (folder.display(), modules.display());
    format!(
        "ServerRoot \"{folder}\"
ServerName localhost
Listen 127.0.0.1:{port}
PidFile \"{folder}/pid\"
ErrorLog \"{folder}/error.log\"
LoadModule mpm_prefork_module \"{modules}/mod_mpm_prefork.so\"
LoadModule authz_core_module \"{modules}/mod_authz_core.so\"
DocumentRoot \"{folder}\"
ServerLimit {workers}
StartServers {workers}
MinSpareServers 1
MaxSpareServers {workers}
MaxRequestWorkers {workers}
KeepAlive Off
User daemon
Group daemon
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(why: &str) {
        schedlab_testing::skipped(&format!("original programs: {why}"));
    }

    #[test]
    fn originals_are_of_models_and_have_their_options() {
        for original in ORIGINALS {
            let model = list().iter().find(|model| model.name == original.workload);
            let names: Vec<_> = model
                .unwrap()
                .params
                .iter()
                .map(|param| param.name)
                .collect();
            for option in original.options {
                assert!(names.contains(option), "{} {option}", original.workload);
            }
        }
    }

    #[test]
    fn what_the_original_lacks_is_refused() {
        let told = |text: &str| {
            run(text, Extra::default(), Duration::from_secs(10))
                .unwrap_err()
                .to_string()
        };
        assert!(
            told("chat").contains(
                "there is one for bodytrack, ferret, hackbench, httpd, kbuild, pipe, tpch"
            )
        );
        assert!(told("hackbench:fds=3").contains("has no option for `fds`"));
        assert!(told("tpch:scan=3us").contains("has no option for `scan`"));
        let source = Extra {
            source: Some(Path::new("/nowhere")),
            scale: None,
        };
        let refused = run("pipe", source, Duration::from_secs(10)).unwrap_err();
        assert!(refused.to_string().contains("takes no --source"));
        assert!(told("hackbench:nice=5").contains("has no option for `nice`"));
        // An option that is given with its default value is no request.
        let workload = Workload::parse("hackbench:fds=20,groups=1", 2).unwrap();
        let hackbench = ORIGINALS.iter().find(|one| one.workload == "hackbench");
        assert!(hackbench.unwrap().refuse_others(&workload).is_ok());
    }

    #[test]
    fn figures_are_read() {
        let pipe = "# Running 'sched/pipe' benchmark:\n# Executed 1000 pipe operations between two processes\n\n     Total time: 0.008 [sec]\n\n       8.623000 usecs/op\n         115968 ops/sec\n";
        assert_eq!(figure(pipe, "usecs/op").unwrap() * 1e3, 8_623.0);
        assert!(figure(pipe, "usecs").is_err());
        assert!(figure("", "usecs/op").is_err());
        let messaging = |time: &str| {
            messaging_ns(&format!(
                "# 1 groups == 40 processes run\n\n     Total time: {time} [sec]\n"
            ))
        };
        assert_eq!(messaging("1.234").unwrap(), 1.234e9);
        let short = messaging("0.091").unwrap_err().to_string();
        assert!(short.contains("91 ms are too few"), "{short}");
        assert!(messaging("nan").is_err());
        let wrk = "Running 1s test\n  1 threads\nRequests/sec:   1234.50\nTransfer/sec: 1MB\n";
        assert_eq!(requests_per_second(wrk), Some(1234.5));
        assert_eq!(requests_per_second("unable to connect"), None);
        assert_eq!(whole_seconds("5s"), Some(5));
        assert_eq!(whole_seconds("500ms"), None);
        assert_eq!(whole_seconds("0"), None);
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let started = Instant::now();
        let mut sleep = Command::new("sh");
        sleep.args(["-c", "sleep 60 & sleep 60"]);
        let told = output(&mut sleep, started + Duration::from_millis(200)).unwrap_err();
        assert!(told.to_string().contains("not ended in time"), "{told}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_a_program_leaves_behind_is_not_waited_for() {
        let started = Instant::now();
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & sleep 0.2; echo done"]);
        let (text, took) = output(&mut shell, started + Duration::from_secs(60)).unwrap();
        assert_eq!(text, "done\n");
        assert!(took >= Duration::from_millis(200), "{took:?}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    /// A file that a killed process left does no harm.
    #[test]
    fn folders_are_new_and_for_everybody_to_read() {
        use std::os::unix::fs::PermissionsExt as _;
        let left = std::env::temp_dir().join(format!("schedlab-left-{}", std::process::id()));
        fs::create_dir_all(&left).unwrap();
        let own = folder("left");
        fs::remove_dir(&left).unwrap();
        let own = own.unwrap();
        let mode = fs::metadata(own.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    /// A tree whose build takes a known time.
    #[test]
    fn a_build_is_timed_after_it_was_cleaned() {
        if find("make").is_none() || find("gcc").is_none() {
            skip("make and gcc are not installed");
            return;
        }
        let tree = folder("make").unwrap();
        let folder = tree.path();
        fs::write(
            folder.join("Makefile"),
            "all: a b\na b:\n\tsleep 0.3; echo $(MAKEFLAGS) >$@\nclean:\n\trm -f a b\n",
        )
        .unwrap();
        // Built already: without `clean` there would be nothing to do.
        fs::write(folder.join("a"), "").unwrap();
        fs::write(folder.join("b"), "").unwrap();
        let time = |jobs: u32| {
            let text = format!("kbuild:jobs={jobs}");
            let extra = Extra {
                source: Some(folder),
                ..Extra::default()
            };
            let figure = run(&text, extra, Duration::from_secs(60)).unwrap();
            (figure.value, fs::read_to_string(folder.join("a")).unwrap())
        };
        let (one, _) = time(1);
        assert!(one >= 0.6e9, "{one}");
        let (two, flags) = time(2);
        assert!(two >= 0.3e9 && flags.contains("-j2"), "{two} {flags}");
        let told = run("kbuild", Extra::default(), Duration::from_secs(1)).unwrap_err();
        assert!(told.to_string().contains("--source"), "{told}");
    }

    #[test]
    fn programs_of_the_same_kind_end() {
        for (program, text) in [
            ("x264", "bodytrack:threads=2,iterations=5"),
            ("pbzip2", "ferret:threads=2,iterations=5"),
        ] {
            if find(program).is_none() {
                skip(&format!("{program} is not installed"));
                continue;
            }
            let figure = run(text, Extra::default(), Duration::from_secs(60)).unwrap();
            assert_eq!(figure.score.name, "completion_ns");
            assert!(figure.value > 1e6, "{text}: {}", figure.value);
            let expected = [("threads", "2"), ("iterations", "5")];
            let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
            assert_eq!(figure.params, expected);
        }
    }

    #[test]
    fn perf_tells_a_time() {
        if find("perf").is_none() {
            skip("perf is not installed");
            return;
        }
        let figure = run("pipe:loops=1000", Extra::default(), Duration::from_secs(60)).unwrap();
        assert!((100.0..1e8).contains(&figure.value), "{}", figure.value);
        assert_eq!(figure.score.name, "round_trip_ns_mean");
    }
}
