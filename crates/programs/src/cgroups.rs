//! The cgroups of a run in the kernel: a tree beneath the cgroup of this process.
//!
//! All its cgroups are threaded (Documentation/admin-guide/cgroup-v2.rst, "Threads"): a process stays where it is, and its threads join
//! one by one. The controller `cpu` may have children beside threads, so nothing is moved out of the way.
//!
//! A process of its own removes the tree when the run has ended, whatever ended it, SIGKILL included.

use std::fs::{self, File};
use std::io::{self, ErrorKind, PipeWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schedlab_workload::{CgroupId, CgroupSettings, Cgroups};

use crate::ProgramError;
use crate::sys::{self, Child, Tell};

const CONTROLLERS: &str = "cgroup.controllers";
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";
const TYPE: &str = "cgroup.type";
const THREADS: &str = "cgroup.threads";

/// How long a cgroup may be busy with tasks that have ended.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(4);

/// The name of the cgroup that stands for the root of a workload begins so; the number of the process follows.
pub const PREFIX: &str = "schedlab-";

/// Another way that needs no cgroups of this machine.
const ELSEWHERE: &str =
    "or take a virtual machine (`schedlab run --vm`), or leave out the options of cgroups";

/// How a process gets a cgroup of its own with the right to make others there.
const DELEGATED: &str =
    "start it by `systemd-run --user --scope -p Delegate=yes schedlab …`, or as root";

fn refused(what: impl std::fmt::Display, remedy: &str) -> ProgramError {
    ProgramError::Refused(format!(
        "the workload's cgroups cannot be made: {what}; {remedy}, {ELSEWHERE}"
    ))
}

/// The cgroup of this process.
#[derive(PartialEq, Eq, Debug)]
struct Place {
    /// The top of the mounted tree, which may lie below the kernel's root.
    top: PathBuf,
    own: PathBuf,
    /// Whether the controller `cpu` belongs to cgroup v1.
    is_v1s: bool,
}

/// Returns the root within its file system and the mount point, if a line of proc_pid_mountinfo(5) is one of cgroup v2.
fn mount(line: &str) -> Option<(&str, &str)> {
    let (of_mount, of_source) = line.split_once(" - ")?;
    let mut words = of_mount.split(' ').skip(3);
    let (root, point) = (words.next()?, words.next()?);
    let is_v2 = of_source.split(' ').next() == Some("cgroup2");
    is_v2.then_some((root, point))
}

impl Place {
    /// Finds it by the files of `/proc` beneath `root`, which a test has elsewhere.
    fn find(root: &Path) -> Result<Place, ProgramError> {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let mounts = read("proc/self/mountinfo");
        let own = read("proc/self/cgroup");
        // Of cgroup v1, `NUMBER:CONTROLLERS:PATH`.
        let mut controllers = own.lines().filter_map(|line| line.split(':').nth(1));
        let is_v1s = controllers.any(|list| list.split(',').any(|one| one == "cpu"));
        let own = own.lines().find_map(|line| line.strip_prefix("0::"));
        let mounted = mounts.lines().find_map(mount);
        let (Some(own), Some((mounted, point))) = (own, mounted) else {
            return Err(refused(
                "no cgroup v2 is mounted",
                "mount it (mount -t cgroup2 none /sys/fs/cgroup)",
            ));
        };
        let below = Path::new(own).strip_prefix(mounted);
        let Ok(below) = below.map(|below| below.strip_prefix("/").unwrap_or(below)) else {
            return Err(refused(
                format_args!(
                    "{own}, in which this process is, is not beneath {mounted}, which is mounted at {point}"
                ),
                DELEGATED,
            ));
        };
        let top = root.join(point.trim_start_matches('/'));
        Ok(Place {
            // Without a slash at its end.
            own: top.join(below).components().collect(),
            top,
            is_v1s,
        })
    }

    /// Returns the cgroups in which the controller `cpu` must be enabled for their children, from the top down.
    fn without_cpu(&self) -> Result<Vec<PathBuf>, ProgramError> {
        let mut found = Vec::new();
        for folder in self.own.ancestors() {
            if !has_cpu(&folder.join(SUBTREE_CONTROL)) {
                found.push(folder.to_owned());
            }
            if has_cpu(&folder.join(CONTROLLERS)) {
                found.reverse();
                return Ok(found);
            }
            if folder == self.top {
                break;
            }
        }
        let top = self.top.display();
        let (whose, remedy) = match self.is_v1s {
            true => ("cgroup v1 has it", "boot with cgroup_no_v1=all"),
            false => ("its host keeps it", "delegate it to this container"),
        };
        Err(refused(
            format_args!("cgroup v2 at {top} lacks the controller `cpu`, for {whose}"),
            remedy,
        ))
    }
}

fn has_cpu(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .any(|controller| controller == "cpu")
}

/// A change of the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Make(PathBuf),
    Write(PathBuf, String),
}

impl Step {
    fn carry_out(&self) -> io::Result<()> {
        match self {
            Step::Make(folder) => fs::create_dir(folder),
            Step::Write(file, text) => {
                let mut file = File::options().write(true).open(file)?;
                file.write_all(text.as_bytes())
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Step::Make(path) | Step::Write(path, _) => path,
        }
    }

    fn refusal(&self, error: &io::Error) -> ProgramError {
        let path = self.path().display();
        let remedy = match error.kind() {
            // Another process has cgroups beneath ours that have processes, or has enabled other controllers.
            ErrorKind::ResourceBusy | ErrorKind::Unsupported | ErrorKind::InvalidInput => {
                "start it in a cgroup of its own (`systemd-run --scope -p Delegate=yes schedlab …`)"
            }
            ErrorKind::NotFound => "this kernel is older than the setting",
            ErrorKind::WouldBlock => {
                "raise cgroup.max.depth and cgroup.max.descendants of the cgroups above"
            }
            _ => DELEGATED,
        };
        match self {
            Step::Make(_) => refused(format_args!("cannot make {path}: {error}"), remedy),
            Step::Write(_, text) => refused(
                format_args!("cannot write `{text}` to {path}: {error}"),
                remedy,
            ),
        }
    }
}

/// Enables the controller for the children of a cgroup.
fn enable(folder: &Path) -> Step {
    Step::Write(folder.join(SUBTREE_CONTROL), "+cpu".to_owned())
}

/// Returns the writes that give a cgroup its settings: where they differ from the defaults, for a file may be missing.
fn settings(folder: &Path, settings: CgroupSettings) -> impl Iterator<Item = Step> {
    let default = CgroupSettings::default();
    let of = |file: &str, text: String| Step::Write(folder.join(file), text);
    let (limit, burst) = (settings.bandwidth, settings.bandwidth.burst);
    [
        // An idle cgroup takes no weight.
        (settings.weight != default.weight).then(|| of("cpu.weight", settings.weight.to_string())),
        settings.idle.then(|| of("cpu.idle", "1".to_owned())),
        // A burst may not be longer than the quota.
        (limit != default.bandwidth).then(|| of("cpu.max", limit.to_string())),
        (burst != default.bandwidth.burst)
            .then(|| of("cpu.max.burst", (burst.ns() / 1_000).to_string())),
    ]
    .into_iter()
    .flatten()
}

/// Everything that makes a tree, and what removes it again.
struct Plan {
    /// Where the controller is enabled outside of the tree.
    outside: Vec<PathBuf>,
    /// The folders of the tree by the places of its cgroups, the root's first: parents before their children.
    folders: Vec<PathBuf>,
    steps: Vec<Step>,
}

impl Plan {
    fn new(place: &Place, cgroups: &Cgroups, process: u32) -> Result<Plan, ProgramError> {
        let outside = place.without_cpu()?;
        let mut folders = vec![place.own.join(format!("{PREFIX}{process}"))];
        for id in cgroups.below_root() {
            let parent = cgroups.parent(id).expect("only the root has none");
            folders.push(folders[parent.index()].join(cgroups.name(id)));
        }
        let mut steps: Vec<Step> = outside.iter().map(|folder| enable(folder)).collect();
        let ids = std::iter::once(CgroupId::ROOT).chain(cgroups.below_root());
        for (folder, id) in folders.iter().zip(ids) {
            steps.push(Step::Make(folder.clone()));
            steps.push(Step::Write(folder.join(TYPE), "threaded".to_owned()));
            steps.extend(settings(folder, cgroups.settings(id)));
            if cgroups
                .below_root()
                .any(|child| cgroups.parent(child) == Some(id))
            {
                steps.push(enable(folder));
            }
        }
        Ok(Plan {
            outside,
            folders,
            steps,
        })
    }

    /// Removes whatever there is of the tree. Returns what stays.
    fn undo(&self) -> Option<(&Path, io::Error)> {
        let deadline = Instant::now() + REMOVAL_TIMEOUT;
        for folder in self.folders.iter().rev() {
            while let Err(error) = fs::remove_dir(folder) {
                match error.kind() {
                    // A file system that is mounted read-only refuses to remove what is not there, too.
                    _ if !folder.exists() => break,
                    ErrorKind::ResourceBusy if Instant::now() < deadline => {
                        sys::sleep_for(1_000_000);
                    }
                    _ => return Some((folder, error)),
                }
            }
        }
        for folder in self.outside.iter().rev() {
            // Refused where another process needs it by now.
            let _ = Step::Write(folder.join(SUBTREE_CONTROL), "-cpu".to_owned()).carry_out();
        }
        None
    }
}

/// A tree of cgroups that is there. Dropping this removes it.
pub struct Tree {
    /// The files by which threads join, by the places of the cgroups.
    threads: Vec<File>,
    /// The process that removes the tree waits for the end of this pipe.
    lives: Option<PipeWriter>,
    remover: Child,
}

impl Tree {
    /// Makes the cgroups of a workload; `None` if it has none.
    pub fn of(cgroups: &Cgroups) -> Result<Option<Tree>, ProgramError> {
        if cgroups.is_empty() {
            return Ok(None);
        }
        let place = Place::find(Path::new("/"))?;
        let plan = Plan::new(&place, cgroups, std::process::id())?;
        Tree::make(&plan).map(Some)
    }

    /// Starts the process that undoes a plan when this one, or the tree, has ended.
    fn watched(plan: &Plan) -> Result<Tree, ProgramError> {
        let system = |cause| ProgramError::System {
            doing: "cannot start the process that removes the cgroups".to_owned(),
            cause,
            remedy: "",
        };
        let (mut reader, writer) = io::pipe().map_err(system)?;
        let mut lives = Some(writer);
        let remover = sys::fork_apart(|| {
            sys::tell(Tell::Starter);
            sys::tell(Tell::Remover);
            // This copy is the child's.
            drop(lives.take());
            let _ = reader.read(&mut [0]);
            if let Some((folder, error)) = plan.undo() {
                let folder = folder.display();
                eprintln!("schedlab: the cgroup {folder} stays there: {error}");
            }
        })
        .map_err(system)?;
        Ok(Tree {
            threads: Vec::new(),
            lives,
            remover,
        })
    }

    fn make(plan: &Plan) -> Result<Tree, ProgramError> {
        // The remover goes by names, so that a tree of the same name that is not ours would go, too.
        let root = plan.folders[0].display();
        if plan.folders[0].exists() {
            return Err(refused(
                format_args!(
                    "{root} is there already, of a run that was killed or of another container"
                ),
                &format!("remove it if no run uses it (`find {root} -depth -type d -delete`)"),
            ));
        }
        let mut tree = Tree::watched(plan)?;
        for step in &plan.steps {
            step.carry_out().map_err(|error| step.refusal(&error))?;
        }
        for folder in &plan.folders {
            let file = folder.join(THREADS);
            let opened = File::options().write(true).open(&file);
            tree.threads.push(opened.map_err(|error| {
                refused(format_args!("{}: {error}", file.display()), DELEGATED)
            })?);
        }
        Ok(tree)
    }

    /// Moves the calling thread.
    pub fn join(&self, cgroup: CgroupId) -> io::Result<()> {
        // Of numbers of threads, 0 is the caller's.
        (&self.threads[cgroup.index()]).write_all(b"0")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        drop(self.lives.take());
        self.remover.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "22 28 0:20 / /proc rw,nosuid shared:5 - proc proc rw\n\
        29 24 0:25 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";

    /// A folder with the files of `/proc` and of a tree of cgroups, each with the controllers that it has and that it enables.
    fn machine(mounts: &str, own: &str, tree: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/self/mountinfo", mounts);
        write("proc/self/cgroup", own);
        for (cgroup, has, enables) in tree {
            write(&format!("sys/fs/cgroup{cgroup}/{CONTROLLERS}"), has);
            write(&format!("sys/fs/cgroup{cgroup}/{SUBTREE_CONTROL}"), enables);
        }
        root
    }

    fn plan(root: &Path, workload: &str) -> Result<Plan, ProgramError> {
        let workload = schedlab_workload::Workload::parse(workload, 1).unwrap();
        Plan::new(&Place::find(root)?, &workload.cgroups, 7)
    }

    /// The steps in words, with paths below the top.
    fn told(root: &Path, steps: &[Step]) -> Vec<String> {
        let top = root.join("sys/fs/cgroup");
        let below = |path: &Path| path.strip_prefix(&top).unwrap().display().to_string();
        let steps = steps.iter().map(|step| match step {
            Step::Make(path) => format!("make {}", below(path)),
            Step::Write(path, text) => format!("{} = {text}", below(path)),
        });
        steps.collect()
    }

    const TWO: &str = "cpu:cgroup=/a/x,cpu.weight=300,cpu.max=50000/100000,cpu.max.burst=10000 + cpu:cgroup=/b,cpu.idle=true,cpu.weight=9";

    #[test]
    fn a_tree_is_made_from_the_top_down() {
        let root = machine(
            MOUNTS,
            "0::/user/me\n",
            &[
                ("", "cpu memory\n", "memory\n"),
                ("/user", "memory\n", "memory\n"),
                ("/user/me", "memory\n", "\n"),
            ],
        );
        let plan = plan(root.path(), TWO).unwrap();
        let expected = [
            "cgroup.subtree_control = +cpu",
            "user/cgroup.subtree_control = +cpu",
            "user/me/cgroup.subtree_control = +cpu",
            "make user/me/schedlab-7",
            "user/me/schedlab-7/cgroup.type = threaded",
            "user/me/schedlab-7/cgroup.subtree_control = +cpu",
            "make user/me/schedlab-7/a",
            "user/me/schedlab-7/a/cgroup.type = threaded",
            "user/me/schedlab-7/a/cgroup.subtree_control = +cpu",
            "make user/me/schedlab-7/a/x",
            "user/me/schedlab-7/a/x/cgroup.type = threaded",
            "user/me/schedlab-7/a/x/cpu.weight = 300",
            "user/me/schedlab-7/a/x/cpu.max = 50000 100000",
            "user/me/schedlab-7/a/x/cpu.max.burst = 10000",
            "make user/me/schedlab-7/b",
            "user/me/schedlab-7/b/cgroup.type = threaded",
            "user/me/schedlab-7/b/cpu.weight = 9",
            "user/me/schedlab-7/b/cpu.idle = 1",
        ];
        assert_eq!(told(root.path(), &plan.steps), expected);
    }

    /// Of a delegated cgroup nothing above is touched, and a controller that is enabled already stays so at the end.
    #[test]
    fn the_controller_is_enabled_only_where_it_is_not() {
        let of_delegated = |enables| {
            let tree = [("", "cpu\n", "\n"), ("/mine", "cpu pids\n", enables)];
            let root = machine(MOUNTS, "0::/mine\n", &tree);
            let plan = plan(root.path(), "cpu:cgroup=/a").unwrap();
            told(root.path(), &plan.steps[..plan.outside.len()])
        };
        assert_eq!(of_delegated("\n"), ["mine/cgroup.subtree_control = +cpu"]);
        assert!(of_delegated("cpu\n").is_empty());
        // `cpuset` is another one. The root, and a part of a tree that is mounted alone.
        let root = machine(MOUNTS, "0::/\n", &[("", "cpuset cpu\n", "cpuset\n")]);
        let steps = plan(root.path(), "cpu:cgroup=/a").unwrap().steps;
        assert_eq!(
            told(root.path(), &steps)[..2],
            ["cgroup.subtree_control = +cpu", "make schedlab-7"]
        );
        let mounts = MOUNTS.replace("/ /sys/fs/cgroup", "/docker/1 /sys/fs/cgroup");
        let root = machine(&mounts, "0::/docker/1/in\n", &[("/in", "cpu\n", "cpu\n")]);
        let steps = plan(root.path(), "cpu:cgroup=/a").unwrap().steps;
        assert_eq!(told(root.path(), &steps)[0], "make in/schedlab-7");
    }

    #[test]
    fn each_refusal_names_its_reason_and_a_remedy() {
        let v1 = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let top = [("", "memory pids\n", "\n")];
        for (mounts, own, tree, reason, remedy) in [
            (
                v1,
                "1:cpu:/\n",
                &[][..],
                "no cgroup v2 is mounted",
                "mount -t cgroup2",
            ),
            (
                MOUNTS,
                "1:cpu:/\n",
                &top[..],
                "no cgroup v2 is mounted",
                "mount -t cgroup2",
            ),
            (
                MOUNTS,
                "0::/\n",
                &top[..],
                "for its host keeps it",
                "delegate it",
            ),
            (
                MOUNTS,
                "2:cpu,cpuacct:/\n0::/\n",
                &top[..],
                "for cgroup v1 has it",
                "cgroup_no_v1=all",
            ),
            (
                &MOUNTS.replace("/ /sys/fs/cgroup", "/docker/1 /sys/fs/cgroup"),
                "0::/docker/2\n",
                &top[..],
                "/docker/2, in which this process is, is not beneath /docker/1",
                "systemd-run",
            ),
        ] {
            let root = machine(mounts, own, tree);
            let error = plan(root.path(), "cpu:cgroup=/a").err().expect(reason);
            let told = error.to_string();
            assert!(told.contains(reason) && told.contains(remedy), "{told}");
            assert!(
                told.contains("schedlab run --vm") && !told.contains('\n'),
                "{told}"
            );
            assert!(error.is_usage());
        }
        let step = Step::Write("/c/cgroup.subtree_control".into(), "+cpu".to_owned());
        for (errno, reason, remedy) in [
            (
                libc::EACCES,
                "`+cpu` to /c/cgroup.subtree_control: Permission denied",
                "as root",
            ),
            (libc::EROFS, "Read-only", "as root"),
            (libc::EBUSY, "busy", "in a cgroup of its own"),
            (libc::EOPNOTSUPP, "not supported", "in a cgroup of its own"),
            (libc::ENOENT, "No such file", "this kernel is older"),
            (libc::EAGAIN, "unavailable", "raise cgroup.max.depth"),
        ] {
            let told = step
                .refusal(&io::Error::from_raw_os_error(errno))
                .to_string();
            assert!(told.contains(reason) && told.contains(remedy), "{told}");
        }
    }

    /// A plain folder lacks the files of the kernel, so that the first write into a new cgroup fails.
    #[test]
    fn nothing_is_left_of_a_tree_that_is_made_in_part() {
        let root = machine(MOUNTS, "0::/\n", &[("", "cpu\n", "memory\n")]);
        let plan = plan(root.path(), TWO).unwrap();
        let told = Tree::make(&plan)
            .err()
            .expect("no cgroup file system")
            .to_string();
        assert!(told.contains("schedlab-7/cgroup.type"), "{told}");
        assert!(!plan.folders[0].exists());
        let top = root.path().join("sys/fs/cgroup").join(SUBTREE_CONTROL);
        assert!(fs::read_to_string(top).unwrap().starts_with("-cpu"));
    }

    /// Of a tree of that name which is there already nothing is removed, and nothing else is changed.
    #[test]
    fn a_tree_of_another_process_stays_as_it_is() {
        let root = machine(MOUNTS, "0::/\n", &[("", "cpu\n", "memory\n")]);
        let plan = plan(root.path(), TWO).unwrap();
        fs::create_dir_all(&plan.folders[1]).unwrap();
        let error = Tree::make(&plan).err().expect("the other tree");
        let told = error.to_string();
        assert!(
            told.contains("schedlab-7 is there already") && told.contains("remove it"),
            "{told}"
        );
        assert!(!told.contains('\n') && error.is_usage());
        assert!(plan.folders[1].exists());
        let top = root.path().join("sys/fs/cgroup").join(SUBTREE_CONTROL);
        assert_eq!(fs::read_to_string(top).unwrap(), "memory\n");
    }

    #[test]
    fn a_tree_is_removed_whatever_ends_its_process() {
        let root = tempfile::tempdir().unwrap();
        let folders = ["r", "r/a", "r/a/x"].map(|folder| root.path().join(folder));
        let plan = Plan {
            outside: Vec::new(),
            steps: folders.iter().cloned().map(Step::Make).collect(),
            folders: folders.into(),
        };
        let made = plan.folders.last().unwrap();
        let owner = sys::fork(|| {
            let _tree = Tree::watched(&plan).unwrap();
            plan.steps.iter().for_each(|step| step.carry_out().unwrap());
            sys::sleep_for(60_000_000_000);
        })
        .unwrap();
        let within = |is_over: &dyn Fn() -> bool| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !is_over() && Instant::now() < deadline {
                sys::sleep_for(1_000_000);
            }
            is_over()
        };
        assert!(within(&|| made.exists()));
        owner.kill();
        owner.wait();
        assert!(within(&|| !plan.folders[0].exists()));
    }
}
