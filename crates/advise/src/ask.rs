//! Finds the advice: the contest of all schedulers, the search through features, the last round, and what explains it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::{Duration as Time, Instant};

use schedlab_analysis::{Bounds as Limits, Verdict as Judged, analyse};
use schedlab_compare::{Decomposer, Differs};
use schedlab_machine::Machine;
use schedlab_recording::{Replayed, page::compare};
use schedlab_report::{RunResult, Value};
use schedlab_search::{Plan, RUNS_MIN, finalists};
use schedlab_sim::{Scheduler, SimError, SimSpec};
use schedlab_sweep::{Asked, Budget, Definition, Row, Space};
use schedlab_trace::{Duration, Instant as At};
use schedlab_workload::ScoreRule;
use schedlab_workload::recorded::File;

use crate::advice::{
    Advice, Confirmed, Features, Finalist, NoEstimate, Recording, Round, SCHEMA, Tried, judge,
    verdict,
};
use crate::contest::{Contestant, Field, GivenUp, LEFT, LIMIT_FACTOR, halve, rank, so_far, why};
use crate::estimate::Estimate;
use crate::runs::{Progress, Runs};

/// Part of the runs for the last round.
const LAST_PART: f64 = 0.25;
/// Part of the others for features, where there are any; the contest has the rest.
const FEATURES_PART: f64 = 0.4;
/// Seeds of the last round.
const SEEDS_MIN: u64 = 6;
const SEEDS_MAX: u64 = 20;
/// Points of a space that come into the last round.
const POINTS_LAST: usize = 2;
/// A space with fewer points is no tree of features.
const POINTS_MIN: u64 = 100;
/// The seeds of the last round begin so far behind the search's seeds.
const FRESH: u64 = 1_000_000;
/// Replays under the recorded scheduler.
const REPLAYS: u64 = 3;
/// Runs of the reference with the seeds of the contest.
const BESIDE: u64 = 8;
/// Schedulers that are run again with further seeds: the best one and the reference.
const AGAIN: u64 = 2;
/// Part of the time that runs may take: reading, models and explanations need the rest.
const TIME_PART: f64 = 0.8;
/// Schedulers whose runs say how long a run takes, beside the reference.
const TIMED: usize = 2;

/// How much may be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// So many runs.
    Runs(u64),
    /// As many as this machine makes in about that time.
    Time(Time),
}

/// The question.
pub struct Ask<'a> {
    /// The run; its scheduler is the reference.
    pub spec: SimSpec,
    /// The recording, where the program was recorded.
    pub file: Option<&'a File>,
    /// The schedulers to compare.
    pub schedulers: Vec<Scheduler>,
    /// How much may be done.
    pub limit: Limit,
    /// Runs at a time.
    pub threads: NonZeroUsize,
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdviseError {
    /// Something is wrong with the run.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// Something is wrong with the space of features.
    #[error(transparent)]
    Sweep(#[from] schedlab_sweep::SweepError),
    /// The reference does not come to its end.
    #[error("{workload} under {scheduler}: {why}; nothing can be compared with it")]
    Reference {
        /// The program.
        workload: String,
        /// The reference.
        scheduler: String,
        /// How the run ended.
        why: String,
    },
    /// Nobody would compete.
    #[error("no scheduler is compared with {reference}: name others by -s")]
    Alone {
        /// The reference.
        reference: String,
    },
    /// Less than one round.
    #[error(
        "the budget has room for {}, and {least} are the least for {schedulers} schedulers: give --budget {needed} or fewer schedulers by -s",
        schedlab_trace::counted(*.room, "run")
    )]
    Budget {
        /// Runs that there is room for.
        room: u64,
        /// Runs that are needed.
        least: u64,
        /// How many schedulers are asked for.
        schedulers: usize,
        /// A budget that is enough.
        needed: String,
    },
    /// Someone asked to stop before there was anything to say.
    #[error("stopped before any other scheduler came to its end: nothing can be said yet")]
    Stopped,
}

/// Finds the advice. When `stop` becomes true, it is made of what is known.
///
/// # Errors
/// If the program or a scheduler is wrong, the reference fails, or there is too little budget.
pub fn advise(
    ask: &Ask<'_>,
    stop: &AtomicBool,
    show: &mut dyn FnMut(Progress),
) -> Result<Advice, AdviseError> {
    let reference = ask.spec.scheduler.clone();
    let others: Vec<Scheduler> = ask
        .schedulers
        .iter()
        .filter(|one| **one != reference)
        .cloned()
        .collect();
    if others.is_empty() {
        return Err(AdviseError::Alone {
            reference: reference.to_string(),
        });
    }
    let mut runs = Runs::new(ask.threads, stop, show);
    let space = space(&ask.schedulers)?;
    let shares = Shares::of(others.len(), space.is_some());
    let (first, budget) = first_runs(ask, &others, &shares, &mut runs)?;
    let rule = runs.read(&ask.spec)?.time_rule()?;
    let text = |name: &str| match first.measures.get(name) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let higher = text("score_better") != "lower";
    let makespan_ns = first.measures.number("makespan_ns").unwrap_or(0.0) as u64;
    let mut spec = ask.spec.clone();
    if makespan_ns > 0 {
        let limit = Duration::from_ns(makespan_ns.saturating_mul(LIMIT_FACTOR));
        spec.time_limit = spec.time_limit.min(limit);
    }
    let field = Field {
        spec,
        higher,
        makespan_ns,
        limit: GivenUp::of(makespan_ns, ask.spec.time_limit),
        rule,
        shows_early: rule.is_some_and(|rule| begin_of(rule, &first).is_none()),
    };
    runs.of = budget;
    let mut own = Contestant::new(reference.clone());
    own.take(field.spec.seed, &first, field.limit);
    let contestants = others.into_iter().map(Contestant::new).collect();
    let (contest, search) = shares.divide(budget.saturating_sub(runs.made));
    let mut all = halve(&field, &mut runs, &mut own, contestants, contest);
    let (features, points) = match space {
        Some(space) if search >= RUNS_MIN && !runs.is_stopped() => {
            features(&field, space, search, &mut runs)?
        }
        _ => (None, Vec::new()),
    };
    rank(&mut all, higher);
    let last = of_last_round(&reference, &all, points);
    let spent = runs.made + REPLAYS + AGAIN * SEEDS_MIN;
    let left = budget.saturating_sub(spent);
    let seeds = (left / last.len() as u64).clamp(SEEDS_MIN, SEEDS_MAX);
    let mut finalists = last_round(&field, &last, seeds, &mut own, &mut runs);
    if let Some(why) = &own.failed {
        return Err(AdviseError::Reference {
            workload: ask.spec.workload.clone(),
            scheduler: reference.to_string(),
            why: why.clone(),
        });
    }
    let name = reference.to_string();
    let mut round = Round::Last;
    if finalists.is_empty() {
        round = Round::Contest;
        finalists = judge(so_far(&own, &all, higher), &name, higher);
    }
    if finalists.is_empty() {
        return Err(AdviseError::Stopped);
    }
    let confirmed = match round {
        Round::Last => confirm(&field, &finalists[0], &reference, seeds, &mut runs),
        Round::Contest => None,
    };
    let machine = machine(&mut runs, &field.spec)?;
    let cpus = machine.topology.nr_cpus() as u32;
    let (estimate, no_estimate) = match estimate(&field, round, &finalists, &machine) {
        Ok(estimate) => (Some(estimate), None),
        Err(why) => (None, Some(why)),
    };
    let possible_pct = estimate
        .as_ref()
        .and_then(|estimate| possible(estimate, &finalists, &name, higher));
    let tried: Vec<Tried> = all
        .iter()
        .filter(|one| {
            let name = one.scheduler.to_string();
            !finalists.iter().any(|last| last.scheduler == name)
        })
        .map(|one| tried(one, &own.scores, higher))
        .collect();
    let recording = ask.file.and_then(|file| recording(file, ask, &mut runs));
    Ok(Advice {
        schema: SCHEMA,
        workload: ask.spec.workload.clone(),
        machine: ask.spec.machine.clone(),
        cpus,
        unit: text("score_unit"),
        higher_is_better: higher,
        budget_runs: budget,
        runs: runs.made,
        cut_off: runs.is_stopped(),
        verdict: verdict(&finalists, confirmed.as_ref(), &name, higher),
        worst: worst(&finalists, &tried, &name, higher),
        reference: name,
        round,
        finalists,
        confirmed,
        tried,
        features,
        estimate,
        no_estimate,
        possible_pct,
        recording,
    })
}

/// The schedulers of the last round: the reference, the best of the contest and the best points of a space.
fn of_last_round(
    reference: &Scheduler,
    all: &[Contestant],
    points: Vec<Scheduler>,
) -> Vec<Scheduler> {
    let mut last: Vec<Scheduler> = vec![reference.clone()];
    let good = all.iter().filter(|one| one.failed.is_none());
    last.extend(good.take(LEFT).map(|one| one.scheduler.clone()));
    for point in points {
        if !is_among(&point, &last) {
            last.push(point);
        }
    }
    last
}

/// How the runs are divided.
struct Shares {
    /// The least for the last round and what belongs to it.
    last: u64,
    has_features: bool,
}

impl Shares {
    fn of(others: usize, has_features: bool) -> Shares {
        let points = if has_features { POINTS_LAST } else { 0 };
        let finalists = 1 + others.min(LEFT) + points;
        Shares {
            last: SEEDS_MIN * (finalists as u64 + AGAIN) + REPLAYS + BESIDE,
            has_features,
        }
    }

    /// The runs of the contest and of the search through features.
    fn divide(&self, budget: u64) -> (u64, u64) {
        let last = self.last.max((budget as f64 * LAST_PART) as u64);
        let left = budget.saturating_sub(last);
        let features = match self.has_features {
            true => (left as f64 * FEATURES_PART) as u64,
            false => 0,
        };
        // Too few for a model are better spent on the contest.
        match features >= RUNS_MIN {
            true => (left - features, features),
            false => (left, 0),
        }
    }
}

/// Runs the reference and says how many runs the budget has. A time becomes runs by how long some take that do not count:
/// so the same number of runs gives the same advice.
fn first_runs(
    ask: &Ask<'_>,
    others: &[Scheduler],
    shares: &Shares,
    runs: &mut Runs<'_>,
) -> Result<(RunResult, u64), AdviseError> {
    // A wrong file or name is reported now, with its line.
    let prepared = runs.read(&ask.spec)?;
    prepared.check()?;
    for scheduler in others {
        let spec = SimSpec {
            scheduler: scheduler.clone(),
            ..ask.spec.clone()
        };
        runs.read(&spec)?;
    }
    let begun = Instant::now();
    let specs = std::slice::from_ref(&ask.spec);
    let first = runs.make("the current scheduler", specs);
    let took = begun.elapsed();
    let Some(first) = first.into_iter().next().flatten() else {
        return Err(AdviseError::Stopped);
    };
    if !first.is_done() || first.measures.number("score").is_none() {
        return Err(AdviseError::Reference {
            workload: ask.spec.workload.clone(),
            scheduler: ask.spec.scheduler.to_string(),
            why: match first.is_done() {
                true => "its run has no score".to_owned(),
                false => why(&first, GivenUp::AtLimit(ask.spec.time_limit)),
            },
        });
    }
    let least = runs.made + shares.last + others.len() as u64;
    let (room, seconds) = match ask.limit {
        Limit::Runs(room) => (room, took.as_secs_f64()),
        Limit::Time(time) => {
            let limit = first.measures.number("makespan_ns").unwrap_or(0.0) as u64;
            let limit = Duration::from_ns(limit.saturating_mul(LIMIT_FACTOR).max(1));
            let specs: Vec<SimSpec> = others
                .iter()
                .take(TIMED)
                .map(|scheduler| SimSpec {
                    scheduler: scheduler.clone(),
                    time_limit: limit.min(ask.spec.time_limit),
                    ..ask.spec.clone()
                })
                .collect();
            let begun = Instant::now();
            runs.untold("how long runs take", &specs, |_| None::<Decomposer>);
            let per_run = begun.elapsed().as_secs_f64() / specs.len() as f64;
            let left = time.as_secs_f64() * TIME_PART - took.as_secs_f64();
            let per_run = per_run.max(1e-6);
            (runs.made + (left / per_run) as u64, per_run)
        }
    };
    if runs.is_stopped() {
        return Err(AdviseError::Stopped);
    }
    if room < least {
        let seconds = least as f64 * seconds / TIME_PART + took.as_secs_f64();
        return Err(AdviseError::Budget {
            room,
            least,
            schedulers: others.len(),
            needed: match ask.limit {
                Limit::Runs(_) => least.to_string(),
                Limit::Time(_) => format!("{}s", seconds.ceil() as u64 + 1),
            },
        });
    }
    Ok((first, room))
}

/// The scheduler among these with the most combinations of options, if these are a tree of features.
fn space(schedulers: &[Scheduler]) -> Result<Option<Space>, AdviseError> {
    let plain = schedulers.iter().filter(|one| one.options.is_empty());
    let spaces = plain.filter_map(|one| Space::of(&one.name, &[]).ok());
    Ok(spaces
        .filter(|space| space.len() >= POINTS_MIN)
        .max_by_key(Space::len))
}

/// Searches a space with some runs: what most of its good schedulers have, and the best ones.
fn features(
    field: &Field,
    space: Space,
    budget: u64,
    runs: &mut Runs<'_>,
) -> Result<(Option<Features>, Vec<Scheduler>), AdviseError> {
    let name = space.scheduler.clone();
    let definition = Definition::new(Asked {
        workloads: vec![field.spec.workload.clone()],
        space,
        sample: None,
        repeat: 1,
        run: field.spec.clone(),
        seed: field.spec.seed,
        live: None,
        each: false,
        budget: Some(Budget {
            runs: budget,
            timed: None,
        }),
    })?;
    let mut plan = Plan::new(&definition).expect("it has a budget");
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    while let Some(stage) = plan.stage(&rows) {
        let done: BTreeSet<u64> = rows.keys().copied().collect();
        let open = stage.iter().copied().filter(|run| {
            let mut jobs = definition.jobs_of(*run);
            !jobs.all(|job| done.contains(&job))
        });
        let open: Vec<u64> = open.collect();
        let specs: Vec<SimSpec> = open
            .iter()
            .map(|run| {
                let job = definition.jobs_of(*run).next().expect("a run has a job");
                definition.spec(job)
            })
            .collect();
        let results = runs.make("features", &specs);
        for (run, result) in open.iter().zip(results) {
            for job in definition.jobs_of(*run) {
                if let Some(result) = &result {
                    rows.insert(job, Row::new(&definition, job, result));
                }
            }
        }
        if runs.is_stopped() {
            break;
        }
    }
    let mut best = finalists(&definition, 0, &rows);
    best.sort_by(|a, b| {
        let order = a.mean().total_cmp(&b.mean());
        let order = if field.higher { order.reverse() } else { order };
        order.then(a.scheduler.cmp(&b.scheduler))
    });
    let firsts: Vec<u64> = definition.schedulers().collect();
    let points = best
        .iter()
        .take(POINTS_LAST)
        .map(|one| definition.space.scheduler(firsts[one.scheduler]))
        .collect();
    let rows: Vec<Row> = rows.into_values().collect();
    let workload = &field.spec.workload;
    let Ok(analysis) = analyse(&definition, &rows, workload, "score", &Limits::default()) else {
        return Ok((None, points));
    };
    let with = |verdict: Judged| {
        let all = analysis.study.alternatives.iter();
        all.filter(|one| one.significant && one.verdict == verdict)
            .map(|one| format!("{}={}", one.feature, one.alternative))
            .collect()
    };
    let found = analysis.search.as_ref();
    let features = Features {
        space: name,
        runs: found.map_or(0, |search| search.runs),
        failed: found.map_or(0, |search| search.failed),
        of: firsts.len(),
        good: with(Judged::Good),
        bad: with(Judged::Bad),
    };
    Ok((Some(features), points))
}

/// Returns whether a scheduler is one of these, however it is written.
fn is_among(scheduler: &Scheduler, others: &[Scheduler]) -> bool {
    let spelled = schedlab_sim::spelled_out(scheduler);
    let mut others = others.iter().map(schedlab_sim::spelled_out);
    others.any(|other| other == spelled)
}

/// Runs the last ones with seeds that the search has not seen. The first runs are taken apart. If the reference fails, its
/// contestant of the contest says so.
fn last_round(
    field: &Field,
    last: &[Scheduler],
    seeds: u64,
    own: &mut Contestant,
    runs: &mut Runs<'_>,
) -> Vec<Finalist> {
    let first = field.spec.seed.wrapping_add(FRESH);
    let specs: Vec<SimSpec> = (0..seeds)
        .flat_map(|seed| {
            let seed = first.wrapping_add(seed);
            last.iter().map(move |scheduler| field.run(scheduler, seed))
        })
        .collect();
    let results = runs.listen("the last round", &specs, |place| {
        (place < last.len()).then(Decomposer::default)
    });
    let mut times = BTreeMap::new();
    // Runs whose score counts from later on than their begin.
    let mut later: Vec<(SimSpec, At)> = Vec::new();
    let mut contestants: Vec<Contestant> = last.iter().cloned().map(Contestant::new).collect();
    for (place, result) in results.into_iter().enumerate() {
        let Some((result, listener)) = result else {
            continue;
        };
        let contestant = &mut contestants[place % last.len()];
        contestant.take(result.seed, &result, field.limit);
        if place < last.len()
            && let Some(begin) = field.rule.and_then(|rule| begin_of(rule, &result))
        {
            later.push((specs[place].clone(), begin));
            continue;
        }
        if let Some(listener) = listener.filter(|_| result.is_done()) {
            let work = result.measures.number("work");
            times.insert(contestant.scheduler.to_string(), (work, listener.finish()));
        }
    }
    let again: Vec<SimSpec> = later.iter().map(|(spec, _)| spec.clone()).collect();
    let again = runs.untold("where the time goes", &again, |place| {
        Some(Decomposer::counting_from(later[place].1))
    });
    for ((spec, _), heard) in later.iter().zip(again) {
        if let Some((result, Some(listener))) = heard {
            let work = result.measures.number("work");
            times.insert(spec.scheduler.to_string(), (work, listener.finish()));
        }
    }
    let reference = &own.scheduler;
    let failed = contestants.iter().find(|one| one.scheduler == *reference);
    if let Some(why) = failed.and_then(|one| one.failed.clone()) {
        own.failed = Some(why);
    }
    contestants.retain(|one| one.failed.is_none());
    // Of an interrupted round only seeds that all had.
    let common: BTreeSet<u64> = contestants
        .iter()
        .map(|one| one.scores.keys().copied().collect::<BTreeSet<u64>>())
        .reduce(|a, b| a.intersection(&b).copied().collect())
        .unwrap_or_default();
    if common.is_empty() || !contestants.iter().any(|one| one.scheduler == *reference) {
        return Vec::new();
    }
    let scores = contestants.iter().map(|one| {
        let scores = common.iter().map(|seed| one.scores[seed]);
        (one.scheduler.to_string(), scores.collect())
    });
    let mut finalists = judge(scores.collect(), &reference.to_string(), field.higher);
    for one in &mut finalists {
        if let Some((work, time)) = times.remove(&one.scheduler) {
            one.work = work;
            one.time = Some(time);
        }
    }
    finalists
}

/// Runs the best of the last round and the reference with further seeds: the seeds of the last round chose it. `None` where
/// there is nothing to confirm, or after a stop.
fn confirm(
    field: &Field,
    best: &Finalist,
    reference: &Scheduler,
    behind: u64,
    runs: &mut Runs<'_>,
) -> Option<Confirmed> {
    if best.scheduler == reference.to_string() || best.differs.seeds_same {
        return None;
    }
    let first = field.spec.seed.wrapping_add(FRESH).wrapping_add(behind);
    let both = [Scheduler::parse(&best.scheduler), reference.clone()];
    let specs: Vec<SimSpec> = (0..SEEDS_MIN)
        .map(|seed| first.wrapping_add(seed))
        .flat_map(|seed| both.iter().map(move |one| field.run(one, seed)))
        .collect();
    let results = runs.make("the best one again", &specs);
    let mut both = both.map(Contestant::new);
    for (place, result) in results.iter().enumerate() {
        let result = result.as_ref()?;
        both[place % 2].take(result.seed, result, field.limit);
    }
    let failed = both.iter().find_map(|one| {
        let why = one.failed.as_ref()?;
        Some(format!("{} {why}", one.scheduler))
    });
    let scores = |one: &Contestant| one.scores.values().copied().collect::<Vec<f64>>();
    Some(Confirmed {
        differs: match &failed {
            None => Differs::of(&scores(&both[0]), &scores(&both[1]), field.higher),
            Some(_) => None,
        },
        failed,
    })
}

fn machine(runs: &mut Runs<'_>, spec: &SimSpec) -> Result<Machine, AdviseError> {
    let machine = Machine::find(&spec.machine).map_err(SimError::from)?;
    let cpus = runs.read(spec)?.nr_cpus()?;
    Ok(machine.with_cpus(cpus).map_err(SimError::from)?)
}

/// When the part of a run began whose time is in its score; `None` if that is all of it, or the run failed.
fn begin_of(rule: ScoreRule, result: &RunResult) -> Option<At> {
    let of = |name: &str| result.measures.number(name).filter(|_| result.is_done());
    let (score, makespan) = (of("score")?, of("makespan_ns")?);
    let work = || of("work");
    let counted = match rule {
        ScoreRule::Makespan => score,
        ScoreRule::NsPerWork => score * work()?,
        ScoreRule::WorkPerSecond => work()? * 1e9 / score,
        ScoreRule::WorkPerHour => work()? * 3_600e9 / score,
        ScoreRule::Counter(_) => return None,
    };
    let begin = (makespan - counted).round();
    (begin >= 1.0).then(|| At::from_ns(begin as u64))
}

/// About the shortest makespan, where all runs do the same work: of those that end by the clock a better one does more.
fn estimate(
    field: &Field,
    round: Round,
    finalists: &[Finalist],
    machine: &Machine,
) -> Result<Estimate, NoEstimate> {
    if field.rule.is_none() {
        return Err(NoEstimate::ScoreIsNoTime);
    }
    if round == Round::Contest {
        return Err(NoEstimate::Stopped);
    }
    let mut works = finalists.iter().map(|one| one.work);
    let first = works.next().flatten();
    if works.any(|work| work != first) {
        return Err(NoEstimate::WorkDiffers);
    }
    let runs: Vec<_> = finalists
        .iter()
        .filter_map(|one| one.time.as_ref())
        .collect();
    Estimate::of(&runs, machine).ok_or(NoEstimate::Stopped)
}

/// By how many percent the score of another scheduler could differ from the reference's.
fn possible(
    estimate: &Estimate,
    finalists: &[Finalist],
    reference: &str,
    higher: bool,
) -> Option<f64> {
    let own = finalists.iter().find(|one| one.scheduler == reference)?;
    let own = own.time.as_ref()?.makespan_ns as f64;
    let least = (estimate.least_ns().max(1) as f64).min(own);
    // The score follows from the makespan: it is the time, or work per time.
    Some(match higher {
        true => 100.0 * (own / least - 1.0),
        false => 100.0 * (least / own - 1.0),
    })
}

fn tried(one: &Contestant, reference: &BTreeMap<u64, f64>, higher: bool) -> Tried {
    let pairs = one
        .scores
        .iter()
        .filter_map(|(seed, score)| Some((*score, *reference.get(seed)?)));
    let (own, other): (Vec<f64>, Vec<f64>) = pairs.unzip();
    Tried {
        scheduler: one.scheduler.to_string(),
        runs: one.scores.len(),
        differs_pct: match one.failed {
            None => Differs::of(&own, &other, higher).map(|differs| differs.percent),
            Some(_) => None,
        },
        failed: one.failed.clone(),
    }
}

/// The worst one that came to its end.
fn worst(finalists: &[Finalist], tried: &[Tried], reference: &str, higher: bool) -> Option<Tried> {
    let last = finalists
        .iter()
        .filter(|one| one.scheduler != reference)
        .map(|one| Tried {
            scheduler: one.scheduler.clone(),
            runs: one.scores.len(),
            differs_pct: Some(one.differs.percent),
            failed: None,
        });
    let tried = tried
        .iter()
        .filter(|one| one.differs_pct.is_some())
        .cloned();
    let gain = |one: &Tried| {
        let differs = one.differs_pct.unwrap_or(0.0);
        if higher { differs } else { -differs }
    };
    tried.chain(last).min_by(|a, b| gain(a).total_cmp(&gain(b)))
}

/// Replays under the recorded scheduler, on as many CPUs as the program had, against the recording.
fn recording(file: &File, ask: &Ask<'_>, runs: &mut Runs<'_>) -> Option<Recording> {
    let recorded = file.head.recorded.as_ref()?;
    let specs: Vec<SimSpec> = (0..REPLAYS)
        .map(|seed| SimSpec {
            scheduler: Scheduler::plain(Scheduler::KERNELS_OWN),
            cpus: Some(recorded.cpus as usize),
            seed: ask.spec.seed.wrapping_add(seed),
            ..ask.spec.clone()
        })
        .collect();
    let replays = runs.listen("replays of the recording", &specs, |_| {
        Some(Replayed::default())
    });
    let made = replays.iter().flatten().count();
    let replays: Vec<_> = replays
        .into_iter()
        .flatten()
        .filter(|(result, _)| result.is_done())
        .filter_map(|(_, replayed)| Some(replayed?.measured()))
        .collect();
    let rows = match replays.is_empty() {
        true => Vec::new(),
        false => compare(&recorded.measured, &replays),
    };
    let errors_pct = rows
        .iter()
        .filter(|row| ["makespan", "CPU time", "wait for a CPU, sum"].contains(&row.label))
        .filter(|row| row.recorded > 0)
        .map(|row| {
            let error = row.replayed as f64 / row.recorded as f64 - 1.0;
            (row.label.to_owned(), 100.0 * error)
        });
    let there = recorded.measured.makespan_ns as f64 * f64::from(recorded.cpus.max(1));
    Some(Recording {
        lost_events: recorded.lost_events,
        not_inferred_pct: 100.0 * recorded.waits.not_inferred(),
        others_pct: 100.0 * recorded.others_cpu_ns as f64 / there.max(1.0),
        replays: made as u64,
        errors_pct: errors_pct.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_round_has_its_runs_and_features_enough_for_a_model() {
        let shares = Shares::of(20, true);
        // Six finalists with six seeds, the best and the reference again, three replays, and the reference beside the contest.
        assert_eq!(shares.last, 36 + 12 + 3 + 8);
        assert_eq!(shares.divide(159), (60, 40));
        assert_eq!(shares.divide(400), (180, 120));
        assert_eq!(
            shares.divide(89),
            (30, 0),
            "12 runs are too few for a model"
        );
        assert_eq!(shares.divide(10), (0, 0));
        let without = Shares::of(2, false);
        assert_eq!(without.last, 18 + 12 + 11);
        assert_eq!(without.divide(81), (40, 0));
    }

    /// A run of 10 s whose score counts from 4 s on.
    #[test]
    fn the_begin_follows_from_the_score() {
        let second = 1_000_000_000;
        for (rule, score) in [
            (ScoreRule::Makespan, 6e9),
            (ScoreRule::NsPerWork, 2e7),
            (ScoreRule::WorkPerSecond, 50.0),
            (ScoreRule::WorkPerHour, 180_000.0),
        ] {
            let mut result = RunResult {
                exit: schedlab_report::Exit::Done,
                ..RunResult::default()
            };
            result.measures.float("score", score);
            result.measures.int("work", 300_u64);
            result.measures.int("makespan_ns", 10 * second);
            assert_eq!(begin_of(rule, &result), Some(At::from_ns(4 * second)));
            // The score counts from the start.
            result.measures.int("makespan_ns", 6 * second);
            assert_eq!(begin_of(rule, &result), None);
            result.measures.int("makespan_ns", 10 * second);
            result.exit = schedlab_report::Exit::TimeLimit;
            assert_eq!(begin_of(rule, &result), None);
        }
    }

    #[test]
    fn a_count_and_a_workload_of_several_have_no_time() {
        let rule = |workload: &str| {
            let spec = SimSpec::new(workload, Scheduler::parse("fifo"), "laptop");
            let run = schedlab_sim::Inputs::default().read(&spec).unwrap();
            run.time_rule().unwrap()
        };
        assert_eq!(rule("hackbench"), Some(ScoreRule::Makespan));
        assert_eq!(rule("lat_ctx"), None);
        assert_eq!(rule("hackbench + cpu:duration=1s"), None);
    }

    #[test]
    fn the_space_is_the_scheduler_with_most_combinations() {
        let all = schedlab_sim::parse_schedulers("all").unwrap();
        let space = space(&all).unwrap().unwrap();
        assert_eq!(space.len(), 5_832);
        let two = schedlab_sim::parse_schedulers("fifo,vtime").unwrap();
        assert!(super::space(&two).unwrap().is_none());
    }
}
