//! Tests the meaning of words; in a program of its own, since it changes the working directory.

use schedlab_workload::Workload;

/// A file that happens to have a model's name is asked for as a path.
#[test]
fn a_models_name_is_the_model_whatever_files_there_are() {
    let folder = std::env::temp_dir().join(format!("schedlab-names-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::env::set_current_dir(&folder).unwrap();
    for name in ["pipe", "cpu:tasks=2", "tasks"] {
        std::fs::write(name, r#"{"tasks": {"a": {"loop": 3, "run": 10}}}"#).unwrap();
    }
    let score = |text: &str| Workload::parse(text, 2).unwrap().score.name;
    assert_eq!(score("pipe"), "round_trip_ns_mean");
    assert_eq!(score("pipe:loops=3"), "round_trip_ns_mean");
    assert_eq!(score("cpu:tasks=2"), score("cpu"));
    for text in ["./pipe", "tasks"] {
        let workload = Workload::parse(text, 2).unwrap();
        assert_eq!(
            (workload.tasks.len(), workload.score.unit),
            (1, "phase iterations/s")
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
