//! How a workload is asked for: `name:option=value,option=value`.

use std::sync::Arc;

use schedlab_trace::CpuSet;

use crate::models::list;
use crate::{Builder, Options, Workload, WorkloadError, compose, recorded, rtapp};

impl Workload {
    /// Returns the paths of the rt-app files that `text` asks for.
    pub fn files(text: &str) -> Vec<String> {
        let parts = compose::split(text).unwrap_or_default();
        let files = parts.iter().filter_map(|part| rtapp::split(part));
        files.map(|(path, _)| path.to_owned()).collect()
    }

    /// Returns the names of the parts that `text` asks for, with which the names of their measures begin; empty for one workload.
    pub fn part_names(text: &str) -> Vec<String> {
        match compose::split(text) {
            Ok(parts) if parts.len() > 1 => compose::names(&parts),
            _ => Vec::new(),
        }
    }

    /// Returns the workload that `text` asks for: `name`, `name:option=value,option=value`, or with the path of an
    /// rt-app file (`*.json`) or of a workload file ([`recorded`]) in place of the name; several with ` + ` between them
    /// run beside each other.
    ///
    /// `nr_cpus` matters to where tasks may run (`pin`, CPU lists) and, where an option's default is "per CPU", to how
    /// many there are; never to what a task does. Nothing is drawn here: tasks draw from [`crate::stream`] while they run.
    ///
    /// # Errors
    /// If there is no such workload, option, value or file, if the file is wrong, or if the workload could
    /// never end.
    pub fn parse(text: &str, nr_cpus: usize) -> Result<Workload, WorkloadError> {
        Workload::parse_on(text, &CpuSet::all(nr_cpus))
    }

    /// Returns the same where not all CPUs of a machine may be used: `pin` and what is "per CPU" go by those that are
    /// `allowed`, of as many as the set has room for. CPU lists are taken at their word.
    ///
    /// # Errors
    /// As [`Workload::parse`].
    pub fn parse_on(text: &str, allowed: &CpuSet) -> Result<Workload, WorkloadError> {
        Workload::parse_reading(text, allowed, &rtapp::read_file)
    }

    /// Returns the same for a caller that reads the files itself: `read` returns a file's contents.
    ///
    /// # Errors
    /// As [`Workload::parse`].
    pub fn parse_reading(
        text: &str,
        allowed: &CpuSet,
        read: &dyn Fn(&str) -> Result<Arc<str>, WorkloadError>,
    ) -> Result<Workload, WorkloadError> {
        assert!(!allowed.is_empty(), "a machine has a CPU");
        let parts = compose::split(text)?;
        if let [only] = &parts[..] {
            return Workload::parse_one(only, allowed, read);
        }
        let workloads = parts
            .iter()
            .map(|part| Workload::parse_one(part, allowed, read));
        let workloads = workloads.collect::<Result<Vec<_>, _>>()?;
        compose::together(&parts, workloads)
    }

    fn parse_one(
        text: &str,
        allowed: &CpuSet,
        read: &dyn Fn(&str) -> Result<Arc<str>, WorkloadError>,
    ) -> Result<Workload, WorkloadError> {
        if let Some((path, options)) = rtapp::split(text) {
            let contents = read(path)?;
            return match recorded::is_recorded(&contents) {
                true => recorded::parse_on(path, &contents, options, allowed),
                false => rtapp::parse_on(path, &contents, options, allowed),
            };
        }
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let is_model = |name: &str| list().iter().any(|model| model.name == name.trim());
        if !is_model(name) && name.split('+').any(is_model) {
            return Err(WorkloadError::Composition {
                text: text.to_owned(),
                message:
                    "workloads beside each other are separated by a `+` with a space on either side"
                        .to_owned(),
            });
        }
        let Some(model) = list().iter().find(|model| model.name == name) else {
            return Err(WorkloadError::UnknownWorkload {
                name: name.to_owned(),
                choices: list().iter().map(|model| model.name).collect(),
            });
        };
        let options = Options::read(name, model.all_params(), options)?;
        let mut builder = Builder::new(&options, allowed);
        let score = (model.build)(&options, &mut builder)?;
        builder.finish(&options, score)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match Workload::parse(text, 2) {
            Ok(_) => panic!("`{text}` was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn refusals_name_the_choices_and_the_nearest() {
        assert_eq!(
            refusal("pip"),
            format!(
                "unknown workload `pip` (did you mean `pipe`?); there are: {}, or the path of an rt-app file (*.json)",
                list().iter().map(|m| m.name).collect::<Vec<_>>().join(", ")
            )
        );
        assert_eq!(
            refusal("pipe:loop=3"),
            "workload `pipe` has no option `loop` (did you mean `loops`?); it takes: loops, threads, pin, nice, policy, start, cgroup, cpu.weight, cpu.max, cpu.max.burst, cpu.idle"
        );
        assert_eq!(
            refusal("pipe:loops=0"),
            "workload `pipe`: `loops=0` is not possible: it takes an integer from 1 to 1000000000"
        );
        assert_eq!(
            refusal("pipe:loops=1,loops=2"),
            "workload `pipe`: `loops` is given twice; write `pipe:option=value,option=value`"
        );
        assert!(refusal("pipe:loops").contains("has no `=`"));
        assert!(refusal("pipe:loops=1,").contains("has no `=`"));
        assert!(refusal("").contains("unknown workload ``"));
    }

    #[test]
    fn what_goes_by_cpus_goes_by_those_that_are_allowed() {
        let allowed: CpuSet = "1,3".parse().unwrap();
        let on = |text: &str| Workload::parse_on(text, &allowed.resized(4)).unwrap();
        let tasks = on("cpu:tasks=3,pin=true").tasks;
        let places = tasks.iter().map(|task| task.affinity.as_ref().unwrap());
        let places: Vec<String> = places.map(ToString::to_string).collect();
        assert_eq!(places, ["1", "3", "1"]);
        let nr_tasks = |text: &str| {
            let nr = |workload: Workload| workload.tasks.len();
            let all = |nr_cpus| nr(Workload::parse(text, nr_cpus).unwrap());
            (nr(on(text)), all(2), all(4))
        };
        assert_eq!(nr_tasks("schbench"), (3, 3, 5));
        let (some, two, four) = nr_tasks("tpch:streams=1");
        assert!(some == two && two < four, "{some} {two} {four}");
    }

    #[test]
    fn models_are_sorted_and_their_defaults_build() {
        assert!(list().is_sorted_by(|a, b| a.name < b.name));
        for model in list() {
            let workload = Workload::parse(model.name, 3).unwrap();
            let names: Vec<_> = model.all_params().map(|param| param.name).collect();
            let shown: Vec<_> = workload.params.iter().map(|(name, _)| name).collect();
            let plain = model.all_params().filter(|param| !param.is_of_cgroup());
            let plain: Vec<_> = plain.map(|param| param.name).collect();
            assert_eq!(shown, plain.iter().collect::<Vec<_>>());
            assert!(!workload.tasks.is_empty());
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "{} declares twice", model.name);
        }
    }

    #[test]
    fn common_options_reach_every_task() {
        for model in list() {
            let text = format!("{}:pin=true,nice=1/2,policy=fifo:7", model.name);
            let workload = Workload::parse(&text, 3).unwrap();
            for (i, task) in workload.tasks.iter().enumerate() {
                let cpus = task.affinity.as_ref().unwrap();
                assert_eq!(cpus.to_string(), (i % 3).to_string());
                assert_eq!(usize::from(task.nice.unsigned_abs()), 1 + i % 2);
                assert_eq!(task.class, crate::SchedClass::Fifo(7));
            }
        }
    }
}
