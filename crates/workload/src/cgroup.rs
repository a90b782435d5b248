//! Cgroups with their settings of the cpu controller: a tree that the tasks of a workload are in.
//!
//! Names and ranges follow cgroup v2 (Documentation/admin-guide/cgroup-v2.rst, "CPU Interface Files").

use std::fmt;

use schedlab_trace::Duration;

/// A cgroup, by its place in [`Cgroups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct CgroupId(pub u32);

impl CgroupId {
    /// The root, in which every task begins that names no other one.
    pub const ROOT: CgroupId = CgroupId(0);

    /// Its index in a table of all cgroups, the root included.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The option of a workload with the path of a cgroup.
pub(crate) const OPTION: &str = "cgroup";

/// Weights from 1 to this (`CGROUP_WEIGHT_MAX`).
pub const WEIGHT_MAX: u32 = 10_000;
/// The weight of a cgroup that has been given none (`CGROUP_WEIGHT_DFL`).
pub const WEIGHT_DEFAULT: u32 = 100;

/// A limit of CPU time: `cpu.max` and `cpu.max.burst`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bandwidth {
    /// CPU time in each period; `None`: no limit.
    pub quota: Option<Duration>,
    /// Length of a period.
    pub period: Duration,
    /// Unused quota that is kept for later periods, at most.
    pub burst: Duration,
}

impl Default for Bandwidth {
    fn default() -> Bandwidth {
        Bandwidth {
            quota: None,
            // default_cfs_period()
            period: Duration::from_us(100_000),
            burst: Duration::from_us(0),
        }
    }
}

impl Bandwidth {
    /// Checks the times, more strictly than `tg_set_bandwidth()` (kernel/sched/core.c), which takes a quota of more than a day
    /// and a burst without a quota. Says in words what is wrong.
    ///
    /// # Errors
    /// If a write to `cpu.max` or `cpu.max.burst` fails with EINVAL, the quota is longer than a day, a burst has no quota, or a
    /// time has a part of a µs, which those files cannot say.
    pub fn check(&self) -> Result<(), &'static str> {
        let (ms, second) = (Duration::from_us(1_000), Duration::from_us(1_000_000));
        if self.period < ms || self.period > second {
            return Err("the period must be from 1 ms to 1 s");
        }
        match self.quota {
            Some(quota) if quota < ms => return Err("the quota must be at least 1 ms"),
            Some(quota) if quota > Duration::from_secs(86_400) => {
                return Err("the quota must be at most a day");
            }
            Some(quota) if self.burst > quota => {
                return Err("the burst must not be longer than the quota");
            }
            None if self.burst.ns() > 0 => return Err("a burst needs a quota"),
            _ => {}
        }
        let times = [self.quota.unwrap_or(ms), self.period, self.burst];
        match times.iter().all(|time| time.ns().is_multiple_of(1_000)) {
            true => Ok(()),
            false => Err("all times must be whole us"),
        }
    }
}

/// The settings of a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CgroupSettings {
    /// `cpu.weight`, 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// `cpu.max`, `cpu.max.burst`.
    pub bandwidth: Bandwidth,
    /// `cpu.idle`.
    pub idle: bool,
}

impl Default for CgroupSettings {
    fn default() -> CgroupSettings {
        CgroupSettings {
            weight: WEIGHT_DEFAULT,
            bandwidth: Bandwidth::default(),
            idle: false,
        }
    }
}

/// A cgroup below the root.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Cgroup {
    parent: CgroupId,
    name: String,
    /// As the workload gives them; `None`: it only uses the cgroup.
    settings: Option<CgroupSettings>,
}

/// The cgroups of a workload. A parent comes before its children.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cgroups {
    below_root: Vec<Cgroup>,
}

/// Most levels below the root: the `ancestors` of a cgroup has 17 places, the root's included.
const DEPTH_MAX: usize = 16;
/// Most bytes of a name (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// Two parts of a workload that give a cgroup different settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Conflict {
    pub path: String,
}

/// Returns the names on a path such as `/web/api`; `/` has none. Slashes that follow each other count as one, as in every path.
///
/// # Errors
/// In words, if it is no path of a cgroup.
pub(crate) fn names(path: &str) -> Result<Vec<&str>, &'static str> {
    let Some(below) = path.strip_prefix('/') else {
        return Err("the path of a cgroup begins with `/`");
    };
    let names: Vec<&str> = below.split('/').filter(|name| !name.is_empty()).collect();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
    if names.iter().any(|name| !name.chars().all(fits)) {
        return Err("the name of a cgroup has letters, digits, `-`, `_`, `.` and `@`");
    }
    if names.iter().any(|name| matches!(*name, "." | "..")) {
        return Err("no cgroup is named `.` or `..`");
    }
    if names.iter().any(|name| name.len() > NAME_MAX) {
        return Err("the name of a cgroup has at most 255 characters");
    }
    if names.len() > DEPTH_MAX {
        return Err("a cgroup lies at most 16 levels below the root");
    }
    Ok(names)
}

impl Cgroups {
    /// Returns the number of cgroups, the root included.
    pub fn len(&self) -> usize {
        1 + self.below_root.len()
    }

    /// Returns whether there is the root alone.
    pub fn is_empty(&self) -> bool {
        self.below_root.is_empty()
    }

    /// Returns the cgroups below the root, parents before their children.
    pub fn below_root(&self) -> impl Iterator<Item = CgroupId> + use<> {
        (1..self.len() as u32).map(CgroupId)
    }

    fn get(&self, id: CgroupId) -> Option<&Cgroup> {
        self.below_root.get(id.index().checked_sub(1)?)
    }

    /// Returns the parent; the root has none.
    pub fn parent(&self, id: CgroupId) -> Option<CgroupId> {
        self.get(id).map(|cgroup| cgroup.parent)
    }

    /// Returns the last part of its path; the root's is empty.
    pub fn name(&self, id: CgroupId) -> &str {
        self.get(id).map_or("", |cgroup| &cgroup.name)
    }

    /// Returns the settings that the workload gives it, or the defaults.
    pub fn settings(&self, id: CgroupId) -> CgroupSettings {
        self.get(id)
            .and_then(|cgroup| cgroup.settings)
            .unwrap_or_default()
    }

    /// Returns its path, from the root on.
    pub fn path(&self, id: CgroupId) -> String {
        match self.parent(id) {
            None => "/".to_owned(),
            Some(CgroupId::ROOT) => format!("/{}", self.name(id)),
            Some(parent) => format!("{}/{}", self.path(parent), self.name(id)),
        }
    }

    fn child(&mut self, parent: CgroupId, name: &str) -> CgroupId {
        let mut all = self.below_root();
        if let Some(known) =
            all.find(|&id| self.parent(id) == Some(parent) && self.name(id) == name)
        {
            return known;
        }
        self.below_root.push(Cgroup {
            parent,
            name: name.to_owned(),
            settings: None,
        });
        CgroupId(self.below_root.len() as u32)
    }

    /// Returns the cgroup at a path, which is made with all above it if it is not there.
    ///
    /// # Errors
    /// In words, if it is no path of a cgroup.
    pub(crate) fn at(&mut self, path: &str) -> Result<CgroupId, &'static str> {
        let names = names(path)?;
        Ok(names
            .into_iter()
            .fold(CgroupId::ROOT, |parent, name| self.child(parent, name)))
    }

    /// Gives a cgroup below the root its settings.
    ///
    /// # Errors
    /// If it has been given other ones.
    pub(crate) fn set(&mut self, id: CgroupId, settings: CgroupSettings) -> Result<(), Conflict> {
        let path = self.path(id);
        let cgroup = &mut self.below_root[id.index() - 1];
        match cgroup.settings.replace(settings) {
            Some(other) if other != settings => Err(Conflict { path }),
            _ => Ok(()),
        }
    }

    /// Takes the cgroups of another workload: those with the same path are the same. Returns the place of each here.
    ///
    /// # Errors
    /// If both give one of them settings that differ.
    pub(crate) fn merge(&mut self, other: &Cgroups) -> Result<Vec<CgroupId>, Conflict> {
        let mut places = vec![CgroupId::ROOT];
        for cgroup in &other.below_root {
            let id = self.child(places[cgroup.parent.index()], &cgroup.name);
            if let Some(settings) = cgroup.settings {
                self.set(id, settings)?;
            }
            places.push(id);
        }
        Ok(places)
    }
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |time: Duration| time.ns() / 1_000;
        match self.quota {
            None => write!(f, "max {}", us(self.period)),
            Some(quota) => write!(f, "{} {}", us(quota), us(self.period)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weight(weight: u32) -> CgroupSettings {
        CgroupSettings {
            weight,
            ..CgroupSettings::default()
        }
    }

    #[test]
    fn a_path_makes_the_cgroups_on_it_once() {
        let mut cgroups = Cgroups::default();
        assert_eq!(cgroups.at("/"), Ok(CgroupId::ROOT));
        let api = cgroups.at("/web/api").unwrap();
        let web = cgroups.at("/web/").unwrap();
        assert_eq!((api, web, cgroups.len()), (CgroupId(2), CgroupId(1), 3));
        assert_eq!(cgroups.parent(api), Some(web));
        assert_eq!(cgroups.parent(CgroupId::ROOT), None);
        assert_eq!(cgroups.path(api), "/web/api");
        assert_eq!(cgroups.at("/db"), Ok(CgroupId(3)));
        // Slashes that follow each other are one.
        assert_eq!(cgroups.at("//"), Ok(CgroupId::ROOT));
        assert_eq!(cgroups.at("//web///api//"), Ok(api));
        for (wrong, why) in [
            ("web", "begins with `/`"),
            ("", "begins with `/`"),
            ("/a/..", "`.` or `..`"),
            ("/./a", "`.` or `..`"),
            ("/a b", "has letters, digits"),
            (&format!("/{}", "n".repeat(256)), "at most 255 characters"),
            (&"/a".repeat(17), "at most 16 levels"),
        ] {
            let told = cgroups.at(wrong).expect_err(wrong);
            assert!(told.contains(why), "{wrong}: {told}");
        }
        assert!(names(&format!("/{}", "n".repeat(255))).is_ok());
        assert!(names(&"/a".repeat(16)).is_ok());
        assert_eq!(cgroups.len(), 4);
    }

    #[test]
    fn cgroups_with_one_path_are_one() {
        let (mut whole, mut part) = (Cgroups::default(), Cgroups::default());
        let web = whole.at("/web").unwrap();
        whole.set(web, weight(300)).unwrap();
        let db = part.at("/db").unwrap();
        let api = part.at("/web/api").unwrap();
        part.set(api, weight(50)).unwrap();
        let places = whole.merge(&part).unwrap();
        assert_eq!(whole.path(places[db.index()]), "/db");
        assert_eq!(whole.path(places[api.index()]), "/web/api");
        assert_eq!(whole.settings(web).weight, 300);
        assert_eq!(whole.settings(places[api.index()]).weight, 50);
        assert_eq!(
            whole.settings(places[db.index()]),
            CgroupSettings::default()
        );
        // The same again, and others.
        assert!(whole.merge(&part).is_ok());
        let web = part.at("/web").unwrap();
        part.set(web, weight(100)).unwrap();
        let path = "/web".to_owned();
        assert_eq!(whole.merge(&part), Err(Conflict { path }));
    }

    #[test]
    fn limits_that_the_kernel_refuses_or_that_make_no_sense_are_refused() {
        let ms = |n: u64| Duration::from_us(n * 1_000);
        let day_ms = 86_400_000;
        let limit = |quota, period, burst| Bandwidth {
            quota: Some(ms(quota)),
            period: ms(period),
            burst: ms(burst),
        };
        assert_eq!(Bandwidth::default().check(), Ok(()));
        assert_eq!(limit(50, 100, 50).check(), Ok(()));
        assert_eq!(limit(400, 100, 0).check(), Ok(()));
        assert_eq!(limit(day_ms, 100, 0).check(), Ok(()));
        assert_eq!(limit(50, 100, 0).to_string(), "50000 100000");
        assert_eq!(Bandwidth::default().to_string(), "max 100000");
        for wrong in [
            limit(0, 100, 0),
            limit(50, 0, 0),
            limit(50, 1_001, 0),
            limit(50, 100, 51),
            limit(day_ms + 1, 100, 0),
            Bandwidth {
                burst: ms(1),
                ..Bandwidth::default()
            },
            Bandwidth {
                burst: Duration::from_ns(500),
                ..limit(50, 100, 0)
            },
            Bandwidth {
                period: Duration::from_ns(1_000_500),
                ..Bandwidth::default()
            },
            Bandwidth {
                quota: Some(Duration::from_ns(1_000_001)),
                ..Bandwidth::default()
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
