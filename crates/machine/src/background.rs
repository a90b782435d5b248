//! Tasks that run on a machine beside any workload: kernel threads, timers, daemons.

use std::collections::BTreeMap;

/// Tasks that wake from time to time and compute (`[background.NAME]`).
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// Mean time from one wakeup to the next. Each time is drawn from half of it to one and a half of it.
    pub period_us: u64,
    /// CPU time of each wakeup.
    pub run_us: u64,
    /// Whether each CPU has one of its own that is bound to it, as kernel threads of CPUs are; else there is one, and it
    /// runs where the scheduler puts it.
    pub per_cpu: bool,
    /// Its nice level, 20 higher: 0 to 39, as 20 is the normal one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_prio: Option<u32>,
}

impl Background {
    /// Returns its nice level.
    pub fn nice(&self) -> i8 {
        self.static_prio.map_or(0, |prio| prio as i8 - 20)
    }
}

/// Returns the fault in a profile's background: the field and the remedy.
pub(crate) fn complaint(background: &BTreeMap<String, Background>) -> Option<(String, String)> {
    for (name, task) in background {
        let fault = |field: &str, message: &str| {
            Some((format!("background.{name}.{field}"), message.to_owned()))
        };
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 15 || !name.chars().all(is_bare) {
            return fault(
                "period_us",
                "the name has at most 15 letters, digits, - and _, as a task's has",
            );
        }
        if !(10..=1_000_000_000).contains(&task.period_us) {
            return fault("period_us", "must be 10 to 1000000000");
        }
        if task.run_us == 0 || task.run_us > task.period_us / 2 {
            return fault("run_us", "must be 1 or more and at most half of period_us");
        }
        if task.static_prio.is_some_and(|prio| prio > 39) {
            return fault("static_prio", "must be 0 (nice -20) to 39 (nice 19)");
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use crate::Machine;

    fn with(fields: &[(&str, &str)]) -> Result<Machine, crate::ProfileError> {
        let text = Machine::builtin("laptop:quiet").unwrap().to_toml();
        let fields = fields
            .iter()
            .map(|(key, value)| format!("{key} = {{ value = {value}, source = \"guess\" }}\n"));
        let section = format!("[background.kdaemon]\n{}", fields.collect::<String>());
        Machine::from_toml("x.toml", &format!("{text}\n{section}"))
    }

    #[test]
    fn a_background_reads_back_and_can_be_left_out() {
        let all = [
            ("period_us", "5000"),
            ("run_us", "20"),
            ("per_cpu", "true"),
            ("static_prio", "15"),
        ];
        let machine = with(&all).unwrap();
        let task = &machine.background["kdaemon"];
        assert_eq!(
            (task.period_us, task.run_us, task.per_cpu, task.nice()),
            (5_000, 20, true, -5)
        );
        let again = Machine::from_toml("again", &machine.to_toml()).unwrap();
        assert_eq!(again, machine);
        for (field, value, says) in [
            ("period_us", "9", "background.kdaemon.period_us"),
            ("run_us", "2501", "background.kdaemon.run_us"),
            ("run_us", "0", "background.kdaemon.run_us"),
            ("static_prio", "40", "background.kdaemon.static_prio"),
            ("per_cpu", "3", "invalid type"),
        ] {
            let changed = all.map(|(key, old)| (key, if key == field { value } else { old }));
            let error = with(&changed).unwrap_err().to_string();
            assert!(error.contains(says), "{field}: {error}");
        }
    }

    #[test]
    fn a_machine_without_background_can_have_that_of_a_server() {
        let own = Machine::builtin("netfinity-8500r").unwrap();
        let asked = Machine::builtin("netfinity-8500r:background").unwrap();
        assert_eq!(asked.background, own.background);
        let laptop = Machine::find("laptop:background").unwrap();
        assert!(Machine::builtin("laptop").unwrap().background.is_empty());
        let server = Machine::builtin("xeon-e5645-2x6x2").unwrap();
        assert_eq!(laptop.background, server.background);
        assert!(!laptop.background.is_empty());
        assert!(Machine::builtin("laptop:quiet:background").is_err());
    }

    #[test]
    fn a_quiet_machine_has_no_background() {
        for name in Machine::builtin_names() {
            let quiet = Machine::builtin(&format!("{name}:quiet")).unwrap();
            assert!(quiet.background.is_empty(), "{name}");
            let mut machine = Machine::builtin(name).unwrap();
            machine.background.clear();
            assert_eq!(quiet, machine, "{name}");
        }
        assert!(Machine::builtin("pdp-11:quiet").is_err());
        assert!(Machine::builtin("laptop:loud").is_err());
        assert!(Machine::find("laptop:quiet:quiet").is_err());
    }

    #[test]
    fn a_profile_file_can_be_quiet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let path = path.to_str().unwrap();
        let mut machine = with(&[("period_us", "5000"), ("run_us", "20"), ("per_cpu", "true")]);
        let machine = machine.as_mut().unwrap();
        std::fs::write(path, machine.to_toml()).unwrap();
        assert_eq!(Machine::find(path).unwrap(), *machine);
        machine.background.clear();
        assert_eq!(Machine::find(&format!("{path}:quiet")).unwrap(), *machine);
    }
}
