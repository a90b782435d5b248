//! Every model, with options drawn at random: it ends, in any order, and does the same work each time.

use schedlab_workload::testing::{Order, try_run};
use schedlab_workload::{Kind, Rng, Workload, WorkloadError, below, list, stream};

/// A small value of that kind; small, because the reference executor is asked thousands of times.
fn value(name: &str, kind: Kind, rng: &mut Rng) -> String {
    match kind {
        _ if name == "duration" => "20ms".to_owned(),
        // Not drawn: they change nothing that the reference executor does.
        _ if name == "cpu.weight" => "50".to_owned(),
        _ if name == "cpu.max.burst" => "1ms".to_owned(),
        _ if name == "cpu.idle" => "true".to_owned(),
        Kind::Count { min, max } => {
            let n = below(rng, 6);
            (min + n).min(max).to_string()
        }
        Kind::Time { .. } => format!("{}us", below(rng, 150)),
        Kind::Bytes { min, max } => (min + below(rng, 3_000)).min(max).to_string(),
        Kind::Probability => format!("0.{}", below(rng, 10)),
        Kind::Flag => (below(rng, 2) == 1).to_string(),
        Kind::Choice(words) => words[below(rng, words.len() as u64) as usize].to_owned(),
        Kind::NiceList => "-5/0/7".to_owned(),
        Kind::Policy => "normal".to_owned(),
        Kind::Cgroup => "/g".to_owned(),
        Kind::Bandwidth => "20ms/100ms".to_owned(),
        Kind::Percent { max } => format!("{}%", below(rng, max + 1)),
        Kind::Rate { max } => format!("{}/s", below(rng, 2) * max.min(50)),
    }
}

#[test]
fn every_model_ends_whatever_its_options() {
    for (number, model) in list().iter().enumerate() {
        // Its own stream: a new option or model draws other values for no other model.
        let mut rng = stream(7, number as u32);
        let mut built = 0;
        for draw in 0..40 {
            let options: Vec<String> = model
                .all_params()
                .map(|param| format!("{}={}", param.name, value(param.name, param.kind, &mut rng)))
                .collect();
            let text = format!("{}:{}", model.name, options.join(","));
            let parse = || Workload::parse(&text, 3);
            match parse() {
                // Some options exclude each other; these combinations are refused, not built.
                Err(WorkloadError::Contradiction { .. }) => continue,
                Err(error) => panic!("{text}: {error}"),
                Ok(_) => built += 1,
            }
            let timed = options.iter().any(|option| option.starts_with("duration="));
            let mut work = None;
            for order in [Order::RoundRobin, Order::Random(draw)] {
                let end = try_run(parse().unwrap(), order);
                assert!(end.stuck.is_empty(), "{text} {order:?}: {:?}", end.stuck);
                // How much is done in a given time depends on the order; what there is to do does not.
                if !timed {
                    assert_eq!(*work.get_or_insert(end.work), end.work, "{text} {order:?}");
                    assert!(end.work > 0, "{text}");
                }
            }
        }
        assert!(
            built >= 10,
            "{}: only {built} of 40 draws are possible",
            model.name
        );
    }
}

/// Refused before anything of them is made.
#[test]
fn more_tasks_than_a_run_can_have_are_refused() {
    for text in [
        "chat:rooms=100000,users=1000",
        "volano:rooms=100000,users=1000",
        "hackbench:groups=10000,fds=1000",
        "reflex:active_sets=1000000,threads=1000",
        "schbench:message_threads=1000,workers=100000",
        "cpu:tasks=10000000",
    ] {
        let error = Workload::parse(text, 2).map(drop).unwrap_err().to_string();
        assert!(error.contains("and a run has at most 5000000"), "{error}");
    }
    let text = r#"{"tasks": {"a": {"instance": 9000000, "run": 1}}}"#;
    let error = schedlab_workload::rtapp::parse("t", text, "", 2)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("9000000 tasks"), "{error}");
    Workload::parse("cpu:tasks=1000000", 1_024).unwrap();
}
