//! Policies of others: an unsupported feature is reported with its place.

use std::path::PathBuf;

use schedlab_policies::compile::compile_with;
use schedlab_trace::Scheduler;

/// A source in a folder of its own.
struct Source(PathBuf);

impl Source {
    fn new(name: &str, body: &str) -> Source {
        let folder =
            std::env::temp_dir().join(format!("schedlab-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let text = format!(
            "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n{body}\n"
        );
        std::fs::write(folder.join("mine.bpf.c"), text).unwrap();
        Source(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.join("mine.bpf.c")
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const OPS: &str = "SCX_OPS_DEFINE(mine_ops, .enqueue = (void *)mine_enqueue, .name = \"mine\");";

/// The kernel tree's headers define one of the clocks. vmlinux.h has none, because BTF has no macros.
#[test]
fn a_policy_defines_its_own_clocks() {
    for cc in compilers() {
        let body = format!("enum {{ CLOCK_BOOTTIME = 7 }};\n{ENQUEUE}}}\n{OPS}");
        let source = Source::new(&format!("clock-{cc}"), &body);
        let compiled = compile_with(&source.path(), cc);
        assert!(compiled.is_ok(), "{cc}: {compiled:?}");
    }
}

fn compilers() -> Vec<&'static str> {
    let there = |cc: &&str| {
        let version = std::process::Command::new(cc).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let found: Vec<&str> = ["cc", "gcc", "clang", "clang-22"]
        .into_iter()
        .filter(there)
        .collect();
    assert!(!found.is_empty(), "a C compiler is needed");
    found
}

fn error(name: &str, body: &str, cc: &str) -> String {
    let source = Source::new(&format!("{name}-{cc}"), body);
    let error = compile_with(&source.path(), cc).unwrap_err().to_string();
    error.replace(&source.0.display().to_string(), "DIR")
}

#[test]
fn a_policy_of_ones_own_loads_with_its_options() {
    for cc in compilers() {
        let body = format!(
            "const volatile u32 depth = 4; /* how deep */\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, depth, enq_flags);\n}}\n{OPS}"
        );
        let source = Source::new(&format!("own-{cc}"), &body);
        let object = compile_with(&source.path(), cc).unwrap();
        assert_eq!(object.name(), "mine");
        assert_eq!(object.options()[0].doc.as_deref(), Some("how deep"));
        // A folder may have in its name what separates options elsewhere.
        let folder = source.0.join("od:d");
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("mine.bpf.c");
        std::fs::copy(source.path(), &path).unwrap();
        let text = format!("{}:depth=9", path.display());
        assert!(schedlab_policies::select(&Scheduler::parse(&text)).is_ok());
    }
}

/// Of one that compiles, as often as it is asked for.
#[test]
fn what_the_compiler_warns_of_is_told() {
    let body = format!(
        "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tif (enq_flags = 3)\n\t\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, 0, 0);\n}}\n{OPS}"
    );
    let source = Source::new("warnings", &body);
    let path = source.path();
    for _ in 0..2 {
        let selected = schedlab_policies::select(&Scheduler::plain(path.to_str().unwrap()));
        let warnings = selected.unwrap().warnings;
        let start = format!("{}:5: warning: ", path.display());
        assert!(
            matches!(&*warnings, [one] if one.starts_with(&start) && one.contains("parentheses")),
            "{warnings:?}"
        );
    }
    let silent = schedlab_policies::select(&Scheduler::plain("fifo")).unwrap();
    assert!(silent.warnings.is_empty());
}

/// Errors and warnings of what stands below a function are not its own.
#[test]
fn what_is_in_no_function_is_told_of_none() {
    let function = |body: &str| {
        format!(
            "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\t{body};\n}}\n"
        )
    };
    for cc in compilers() {
        let wrong = function("scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, q, 0)");
        let message = error("top", &format!("{wrong}int y = zz;\n{OPS}"), cc);
        let lines: Vec<&str> = message.lines().collect();
        let inside = match cc.starts_with("clang") || lines[0].contains("use of") {
            true => "",
            false => "in mine_enqueue(): ",
        };
        assert!(
            lines[0].starts_with(&format!("DIR/mine.bpf.c:5: {inside}")),
            "{cc}: {message}"
        );
        assert!(
            lines[1].starts_with("DIR/mine.bpf.c:7: "),
            "{cc}: {message}"
        );
        assert!(!lines[1].contains("mine_enqueue"), "{cc}: {message}");
    }
    let warned = function("if (enq_flags = 3) return");
    let body = format!("{warned}int two[1] = {{ 1, 2 }};\n{OPS}");
    let source = Source::new("top-warnings", &body);
    let path = source.path();
    let selected = schedlab_policies::select(&Scheduler::plain(path.to_str().unwrap())).unwrap();
    let others: Vec<&String> = selected
        .warnings
        .iter()
        .filter(|one| one.starts_with(&format!("{}:7: ", path.display())))
        .collect();
    assert!(!others.is_empty(), "{:?}", selected.warnings);
    assert!(
        others.iter().all(|one| !one.contains("mine_enqueue")),
        "{others:?}"
    );
}

#[test]
fn unknown_kfuncs_are_named() {
    for cc in compilers() {
        let call = format!(
            "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tscx_bpf_frobnicate(p);\n}}\n{OPS}"
        );
        let message = error("call", &call, cc);
        assert!(
            message.starts_with("DIR/mine.bpf.c:5: ")
                && message.ends_with("scx_bpf_frobnicate() is not in the virtual kernel"),
            "{cc}: {message}"
        );
        let declared = format!(
            "void bpf_frobnicate(struct task_struct *p) __ksym;\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tbpf_frobnicate(p);\n}}\n{OPS}"
        );
        let message = error("declared", &declared, cc);
        assert!(
            message.contains("mine.bpf.c")
                && message.contains("bpf_frobnicate() is not in the virtual kernel"),
            "{cc}: {message}"
        );
    }
}

#[test]
fn headers_that_are_not_there_are_named() {
    for cc in compilers() {
        let message = error("header", "#include <bpf_arena_spin_lock.h>", cc);
        assert_eq!(
            message,
            "DIR/mine.bpf.c:3: bpf_arena_spin_lock.h is neither beside it nor in the virtual kernel"
        );
    }
}

/// The kernel tree's examples have them beside them.
#[test]
fn headers_that_are_elsewhere_are_named_with_their_folder() {
    let message = error("elsewhere", "#include \"bpf_arena_common.bpf.h\"", "cc");
    let expected = "DIR/mine.bpf.c:3: bpf_arena_common.bpf.h is neither beside it nor in the virtual kernel: include <scx/bpf_arena_common.bpf.h>";
    assert_eq!(message, expected);
}

/// Headers of others define them unless vmlinux.h has.
#[test]
fn the_kernels_types_are_there_for_other_headers() {
    let body = format!(
        "#ifndef __VMLINUX_H__\ntypedef unsigned long u64;\n#endif\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n}}\n{OPS}"
    );
    for cc in compilers() {
        let source = Source::new(&format!("vmlinux-{cc}"), &body);
        assert!(compile_with(&source.path(), cc).is_ok(), "{cc}");
    }
}

#[test]
fn headers_beside_a_policy_are_found_in_angle_brackets_too() {
    for cc in compilers() {
        let body = format!(
            "#include <scx/mine.h>\n#include <mine.h>\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, MINE + SCX_MINE, enq_flags);\n}}\n{OPS}"
        );
        let source = Source::new(&format!("beside-{cc}"), &body);
        std::fs::create_dir_all(source.0.join("scx")).unwrap();
        std::fs::write(source.0.join("mine.h"), "#define MINE 5\n").unwrap();
        std::fs::write(source.0.join("scx/mine.h"), "#define SCX_MINE 6\n").unwrap();
        // The virtual kernel's own header takes precedence.
        std::fs::write(source.0.join("scx/common.bpf.h"), "#error not this one\n").unwrap();
        let compiled = compile_with(&source.path(), cc);
        assert!(compiled.is_ok(), "{cc}: {compiled:?}");
    }
}

/// An edited header makes another policy.
#[test]
fn a_header_in_angle_brackets_counts_as_source() {
    let body = format!(
        "#include <depth.h>\nconst volatile u32 depth = DEPTH;\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, depth, enq_flags);\n}}\n{OPS}"
    );
    let source = Source::new("angle", &body);
    let scheduler = Scheduler::plain(source.path().to_str().unwrap());
    for depth in [4, 5] {
        let text = format!("#define DEPTH {depth}\n");
        std::fs::write(source.0.join("depth.h"), text).unwrap();
        let selection = schedlab_policies::select(&scheduler).unwrap();
        assert_eq!(selection.object.options()[0].default, depth);
    }
}

const ENQUEUE: &str =
    "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{\n\t";

#[test]
fn variables_of_the_kernels_configuration_that_have_no_value_are_named() {
    for cc in compilers() {
        let with = |more: &str| {
            format!(
                "extern bool CONFIG_SCHED_MC __kconfig{more};\n{ENQUEUE}p->scx.slice = CONFIG_SCHED_MC;\n}}\n{OPS}"
            )
        };
        let message = error("kconfig", &with(""), cc);
        assert_eq!(
            message,
            "DIR/mine.bpf.c:6: CONFIG_SCHED_MC has no value in the virtual kernel, whose variables of __kconfig are CONFIG_HZ, CONFIG_NR_CPUS and LINUX_KERNEL_VERSION: declare it __weak, which makes it 0, or leave it out",
            "{cc}"
        );
        let source = Source::new(&format!("weak-{cc}"), &with(" __weak"));
        assert!(compile_with(&source.path(), cc).is_ok(), "{cc}");
    }
}

/// One message names a missing header, a kind of map, a variable of the configuration, and a kfunc, declared or not.
#[test]
fn all_that_is_missing_is_told_at_once() {
    let missing = format!(
        "#include <lib/none.h>\n#include \"nothing.h\"\nstruct {{ __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); }} ring SEC(\".maps\");\nextern bool CONFIG_SCHED_MC __kconfig;\nvoid bpf_frobnicate(struct task_struct *p) __ksym;\n{ENQUEUE}bpf_frobnicate(p);\n\tscx_bpf_frobnicate(p);\n\tscx_bpf_frobnicate(p);\n\tp->scx.slice = CONFIG_SCHED_MC;\n"
    );
    let places = [
        "DIR/mine.bpf.c:3: lib/none.h is neither beside it nor in the virtual kernel",
        "DIR/mine.bpf.c:4: nothing.h is neither beside it nor in the virtual kernel",
        "scx_bpf_frobnicate() is not in the virtual kernel",
        "maps of type RINGBUF are not in the virtual kernel",
        "CONFIG_SCHED_MC has no value in the virtual kernel",
    ];
    for cc in compilers() {
        let message = error("all", &format!("{missing}}}\n{OPS}"), cc);
        for what in places
            .iter()
            .chain(&["bpf_frobnicate() is not in the virtual kernel"])
        {
            let lines = message.lines();
            let with = lines.filter(|line| line.contains(what)).collect::<Vec<_>>();
            let expected = 1 + usize::from(what.starts_with("bpf_frobnicate"));
            assert_eq!(with.len(), expected, "{cc}: {what}\n{message}");
            assert!(
                with.iter().all(|line| line.starts_with("DIR/mine.bpf.c:")),
                "{cc}: {message}"
            );
        }
        assert_eq!(message.lines().count(), 6, "{cc}: {message}");
        assert!(message.contains("(and in other places)"), "{cc}: {message}");
        // A source that makes no object hides only the symbols that the linker alone reports.
        let member = format!("{missing}\tp->scx.slice = p->utime;\n}}\n{OPS}");
        let message = error("all-member", &member, cc);
        for what in places.iter().chain(&["has no member utime"]) {
            let lines = message.lines();
            let with = lines.filter(|line| line.contains(what)).collect::<Vec<_>>();
            assert_eq!(with.len(), 1, "{cc}: {what}\n{message}");
            assert!(with[0].starts_with("DIR/mine.bpf.c:"), "{cc}: {message}");
        }
    }
}

/// A missing licence and a missing function are reported in one message.
#[test]
fn a_missing_licence_is_told_beside_a_missing_function() {
    for cc in compilers() {
        let body = format!("{ENQUEUE}scx_bpf_frobnicate(p);\n}}\n{OPS}");
        let source = Source::new(&format!("licence-{cc}"), &body);
        let text = std::fs::read_to_string(source.path()).unwrap();
        let text: Vec<&str> = text
            .lines()
            .filter(|line| !line.contains("license"))
            .collect();
        std::fs::write(source.path(), text.join("\n")).unwrap();
        let told = compile_with(&source.path(), cc).unwrap_err();
        assert_eq!(told.lines.len(), 2, "{cc}: {told}");
        for what in ["scx_bpf_frobnicate() is not", "it names no licence"] {
            assert!(told.to_string().contains(what), "{cc}: {told}");
        }
    }
}

/// Text of the source that reads like an error of the linker is not one.
#[test]
fn the_sources_own_text_is_no_error() {
    for cc in compilers() {
        let body = format!(
            "#warning \"undefined reference to nothing\"\n{ENQUEUE}u32 a = enq_flags;\n\tif (a = 3) /* else: undefined symbol: none */\n\t\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, a, 0);\n}}\n{OPS}"
        );
        let source = Source::new(&format!("text-{cc}"), &body);
        let object = compile_with(&source.path(), cc);
        assert!(object.is_ok(), "{cc}: {}", object.unwrap_err());
    }
}

/// A user cannot correct our headers.
#[test]
fn no_error_is_told_to_be_in_our_headers() {
    let again = "leave this declaration out";
    for (above, declared, place, remedy) in [
        (
            "",
            "void bpf_rcu_read_lock(void) __ksym;",
            "mine.bpf.c:2: ",
            again,
        ),
        (
            "",
            "static void cast_kern(void *p) {}",
            "mine.bpf.c:2: ",
            again,
        ),
        (
            "",
            "s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;",
            "mine.bpf.c:2: ",
            again,
        ),
        (
            "",
            "extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;",
            "mine.bpf.c:2: ",
            again,
        ),
        (
            "",
            "enum { CLOCK_MONOTONIC = 1 };",
            "mine.bpf.c:2: ",
            "leave this one out",
        ),
        (
            "",
            "struct rq { int mine; };",
            "mine.bpf.c:2: ",
            "leave this one out",
        ),
        (
            "",
            "#include \"mine.h\"",
            "mine.h:1: ",
            "leave this one out",
        ),
        (
            "struct task_struct { int mine; };\n",
            "",
            "mine.bpf.c:1: ",
            "leave this one out",
        ),
        (
            "#define slice 5\n",
            "",
            "mine.bpf.c:1: ",
            "give it another name",
        ),
        // The compiler's own text about the policy's mistakes.
        (
            "",
            "s32 BPF_STRUCT_OPS(mine_dispatch, s32 cpu struct task_struct *p) { return 0; }",
            "mine.bpf.c:2: ",
            "expected",
        ),
        ("struct mine { int x; }\n", "", "mine.bpf.c:", ""),
    ] {
        for cc in compilers() {
            let body = format!("{ENQUEUE}}}\n{OPS}");
            let source = Source::new(&format!("ours-{cc}"), &body);
            let text = std::fs::read_to_string(source.path()).unwrap();
            let text = text.replacen('\n', &format!("\n{declared}\n"), 1);
            std::fs::write(source.path(), format!("{above}{text}")).unwrap();
            std::fs::write(source.0.join("mine.h"), "struct cpumask { int mine; };\n").unwrap();
            let told = compile_with(&source.path(), cc).unwrap_err();
            let first = &told.lines[0];
            let start = format!("{}/{place}", source.0.display());
            assert!(
                first.starts_with(&start) && first.contains(remedy),
                "{cc}: {told}"
            );
            for line in &told.lines {
                let rest = line.strip_prefix(&format!("{}/mine.", source.0.display()));
                let rest = rest.and_then(|rest| rest.split_once(':'));
                let number = rest.and_then(|(_, rest)| rest.split_once(": "));
                let is_number = number.is_some_and(|(number, _)| number.parse::<u32>().is_ok());
                assert!(is_number, "{cc}: {told}");
            }
            assert!(
                !told.to_string().contains("native/") && !told.to_string().contains("SEC()"),
                "{cc}: {told}"
            );
        }
    }
}

#[test]
fn what_no_verifier_lets_policies_write_is_refused() {
    let only = ": of a task, the kernel's verifier lets policies write scx.slice, ";
    for cc in compilers() {
        let writes = |what: &str| {
            format!(
                "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\t{what}\n}}\n{OPS}"
            )
        };
        for what in [
            "p->pid = 5;",
            "p->scx.weight++;",
            "p->comm[0] = 'X';",
            "p->cpus_ptr = NULL;",
        ] {
            let message = error("const", &writes(what), cc);
            assert!(
                message.starts_with("DIR/mine.bpf.c:5: ") && message.contains(only),
                "{cc}: {what}: {message}"
            );
        }
        // A policy may have such a member itself.
        let own = "struct of_mine {\n\tconst int pid;\n\tchar comm[16];\n};\n";
        for what in [
            "struct of_mine *mine = (void *)p; mine->pid = 5;",
            "const struct of_mine *mine = (void *)p; mine->comm[0] = 'X';",
        ] {
            let message = error("const-own", &format!("{own}{}", writes(what)), cc);
            assert!(
                message.starts_with("DIR/mine.bpf.c:9: ") && !message.contains("a task"),
                "{cc}: {what}: {message}"
            );
            let both = writes(&format!("{what}\n\tp->pid = 6;"));
            let message = error("const-both", &format!("{own}{both}"), cc);
            let told: Vec<bool> = message.lines().map(|line| line.contains(only)).collect();
            assert_eq!(told, [false, true], "{cc}: {message}");
        }
        let allowed = writes("p->scx.slice = p->scx.dsq_vtime = p->scx.disallow = 1;");
        let source = Source::new(&format!("writable-{cc}"), &allowed);
        assert!(compile_with(&source.path(), cc).is_ok(), "{cc}");
    }
}

/// Functions that the verifier refuses as soon as they are used, and functions that libbpf does not find.
#[test]
fn ops_that_the_kernel_could_not_call_are_refused() {
    let told = |op: &str, function: &str, cc: &str| {
        let body = format!(
            "{function}\nSCX_OPS_DEFINE(mine_ops, .{op} = (void *)mine_op, .name = \"mine\");"
        );
        let source = Source::new(&format!("op-{cc}"), &body);
        let error = compile_with(&source.path(), cc)
            .err()
            .map(|error| error.to_string());
        error.map(|error| error.replace(&source.0.display().to_string(), "DIR"))
    };
    let program = |returns: &str, parameters: &str, body: &str| {
        format!("{returns} BPF_STRUCT_OPS(mine_op, {parameters})\n{{\n\t{body}\n}}")
    };
    for cc in compilers() {
        let refused = |op: &str, function: &str, what: &str, call: &str| {
            let expected = format!(
                "DIR/mine.bpf.c:3: mine_op() cannot be ops.{op}(): {what}; the kernel calls {call}"
            );
            assert_eq!(told(op, function, cc).as_deref(), Some(&*expected), "{cc}");
        };
        let insert = "scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, 0, f);";
        let enqueue = "void enqueue(struct task_struct *, u64)";
        let function = program("void", "struct task_struct *p, u64 f, u64 g", insert);
        refused("enqueue", &function, "it has 3 parameters, not 2", enqueue);
        let function = program("void", "u64 f, struct task_struct *p", insert);
        let what = "its parameter 2 is struct task_struct *, not u64";
        refused("enqueue", &function, what, enqueue);
        let function = program("void", "struct task_struct *p, s32 prev, u64 f", "");
        let select_cpu = "s32 select_cpu(struct task_struct *, s32, u64)";
        refused(
            "select_cpu",
            &function,
            "it returns void, not s32",
            select_cpu,
        );
        let function = program("s32", "struct task_struct *p, u64 prev, u64 f", "return 0;");
        let what = "its parameter 2 is u64, not s32";
        refused("select_cpu", &function, what, select_cpu);
        let function = program("void", "struct cgroup *cgrp", "");
        let what = "its parameter 1 is struct cgroup *, not struct task_struct *";
        refused("enqueue", &function, what, enqueue);
        // A program without BPF_PROG(), which has its arguments behind a pointer to words.
        let function = program("void", "u64 *ctx", "");
        let what = "its parameter 1 is u64 *, not struct task_struct *";
        refused("enqueue", &function, what, enqueue);

        let plain = "void mine_op(struct task_struct *p, u64 f)\n{\n}";
        let message = told("enqueue", plain, cc).unwrap();
        let expected = "DIR/mine.bpf.c:3: mine_op() is ops.enqueue() and no BPF program, so libbpf does not find it: define it with BPF_STRUCT_OPS()";
        assert_eq!(message, expected, "{cc}");

        // The verifier does not look at unused functions.
        for (op, function) in [
            (
                "enqueue",
                program("int", "struct task_struct *p", "return 1;"),
            ),
            ("enqueue", program("void", "void *p, s64 f", "")),
            ("enqueue", program("void", "u64 p, u32 f", "")),
            (
                "yield",
                program(
                    "int",
                    "struct task_struct *a, struct task_struct *b",
                    "return 2;",
                ),
            ),
            (
                "stopping",
                program("void", "struct task_struct___old *p, int r", ""),
            ),
            (
                "set_cpumask",
                program("void", "const struct task_struct *p, cpumask_t *m", ""),
            ),
            (
                "init",
                "s32 BPF_STRUCT_OPS_SLEEPABLE(mine_op)\n{\n\treturn 0;\n}".to_owned(),
            ),
        ] {
            let function = format!("struct task_struct___old; {function}");
            assert_eq!(told(op, &function, cc), None, "{cc}: {op}");
        }
    }
}

#[test]
fn errors_in_our_macros_are_told_where_they_are_used() {
    for cc in compilers() {
        let uses = |what: &str| {
            let body = format!(
                "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\t{what}\n}}\n{OPS}"
            );
            error("macro", &body, cc)
        };
        for what in [
            "bpf_for_each(task, p, NULL, 0) {}",
            "bpf_printk(\"%d\", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13);",
        ] {
            let message = uses(what);
            let first = message.lines().next().unwrap();
            assert!(first.starts_with("DIR/mine.bpf.c:5: "), "{cc}: {message}");
        }
    }
}

#[test]
fn members_that_are_not_modelled_are_named() {
    for cc in compilers() {
        let body = format!(
            "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tp->scx.slice = p->utime;\n}}\n{OPS}"
        );
        let message = error("member", &body, cc);
        assert!(
            message.starts_with("DIR/mine.bpf.c:5: ")
                && message.contains("struct task_struct has no member utime in the virtual kernel"),
            "{cc}: {message}"
        );
    }
}

#[test]
fn what_came_with_a_later_kernel_is_told_once() {
    for cc in compilers() {
        let told = |call: &str| {
            let body = format!(
                "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\t{call}\n}}\n{OPS}"
            );
            error("later", &body, cc)
        };
        let message = told("scx_bpf_dsq_move_to_local(0);");
        let what = "scx_bpf_dsq_move_to_local() has enq_flags since Linux 7.1: write";
        assert!(
            message.starts_with("DIR/mine.bpf.c:5: ")
                && message.contains(what)
                && message.lines().count() == 1,
            "{cc}: {message}"
        );
        let message = told("scx_bpf_kick_cpu(0);");
        assert!(
            message.contains("scx_bpf_kick_cpu") && message.lines().count() == 1,
            "{cc}: {message}"
        );
    }
}

#[test]
fn few_lines_say_it_all() {
    let calls: String = (0..20)
        .map(|number| format!("\tfrobnicate_{number}();\n"))
        .collect();
    let body = format!(
        "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n{calls}}}\n{OPS}"
    );
    let message = error("many", &body, "cc");
    assert_eq!(message.lines().count(), 17, "{message}");
    assert!(message.ends_with("and 4 more of this kind"), "{message}");
    let message = error(
        "cid",
        "SCX_OPS_CID_DEFINE(mine_ops, .name = \"mine\");",
        "cc",
    );
    assert!(
        message.starts_with("DIR/mine.bpf.c:3: SCX_OPS_CID_DEFINE() is not in the virtual kernel"),
        "{message}"
    );
}

#[test]
fn what_is_no_policy_is_refused() {
    let message = error("none", "int x;", "cc");
    assert_eq!(
        message,
        "DIR/mine.bpf.c: there is no `struct sched_ext_ops`; a policy defines exactly one with SCX_OPS_DEFINE()"
    );
    let maps = format!(
        "struct {{ __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); }} ring SEC(\".maps\");\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n}}\n{OPS}"
    );
    let message = error("ring", &maps, "cc");
    assert!(
        message.starts_with(
            "DIR/mine.bpf.c:3: map `ring`: maps of type RINGBUF are not in the virtual kernel"
        ),
        "{message}"
    );
    let message = error("compiler", "int x;", "no-such-compiler");
    assert!(
        message.starts_with("the C compiler `no-such-compiler` cannot be started"),
        "{message}"
    );
}

/// A simulation leaves out programs that a loader or the kernel would call.
#[test]
fn programs_besides_the_ops_are_left_out() {
    let with = |section: &str| {
        format!(
            "u64 asked;\nSEC(\"{section}\")\nint BPF_PROG(mine_switch, bool preempt)\n{{\n\tasked++;\n\treturn 0;\n}}\n{ENQUEUE}}}\n{OPS}"
        )
    };
    for (section, told) in [
        ("tp_btf/sched_switch", true),
        ("kprobe/schedule", true),
        ("fentry/schedule", true),
        ("tracepoint/sched/sched_switch", true),
        ("syscall", true),
        // libbpf does not load an optional program by itself.
        ("?tp_btf/sched_switch", false),
    ] {
        let source = Source::new("program", &with(section));
        let path = source.path();
        let selected = schedlab_policies::select(&Scheduler::plain(path.to_str().unwrap()));
        let warnings = selected.unwrap().warnings;
        let expected = format!(
            "{}:5: mine_switch() is left out: it is a program of SEC(\"{section}\"), and a simulation calls ops alone",
            path.display()
        );
        match told {
            true => assert_eq!(*warnings, [expected]),
            false => assert!(warnings.is_empty(), "{warnings:?}"),
        }
        for cc in compilers() {
            let object = compile_with(&path, cc).unwrap();
            assert_eq!(
                object.left_out().len(),
                usize::from(told),
                "{cc}: {section}"
            );
        }
    }
    // Ops are not listed as left out.
    for cc in compilers() {
        let body = format!(
            "SEC(\"syscall\")\nvoid mine_enqueue(struct task_struct *p, u64 enq_flags)\n{{\n}}\n{OPS}"
        );
        let message = error("op-program", &body, cc);
        let expected = "DIR/mine.bpf.c:4: mine_enqueue() is ops.enqueue() and no BPF program, ";
        assert!(message.starts_with(expected), "{cc}: {message}");
    }
}

#[test]
fn the_c_library_is_not_in_the_virtual_kernel() {
    for cc in compilers() {
        let calls = |declaration: &str, call: &str| {
            let body = format!(
                "{declaration}\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\t{call}\n}}\n{OPS}"
            );
            error("libc", &body, cc)
        };
        let said = calls("extern void exit(int);", "exit(0);");
        assert_eq!(said, "DIR/mine.bpf.c: exit() is not in the virtual kernel");
        let said = calls(
            "extern long time(long *);",
            "p->scx.slice = time((void *)0);",
        );
        assert_eq!(said, "DIR/mine.bpf.c: time() is not in the virtual kernel");
    }
}

#[test]
fn licences_that_the_kernel_refuses_are_told() {
    let enqueue = "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{\n}\n";
    let source = Source::new("licence", &format!("{enqueue}{OPS}"));
    let text = std::fs::read_to_string(source.path()).unwrap();
    let told = |text: String| {
        std::fs::write(source.path(), text).unwrap();
        compile_with(&source.path(), "cc").map_err(|error| error.to_string())
    };
    let dual = told(text.replace("\"GPL\"", "\"Dual MIT/GPL\""));
    assert!(dual.is_ok(), "{dual:?}");
    let mit = told(text.replace("\"GPL\"", "\"MIT\"")).unwrap_err();
    assert!(mit.contains("mine.bpf.c: its licence is 'MIT'"), "{mit}");
    let none = told(text.replace("SEC(\"license\")", "")).unwrap_err();
    assert!(none.contains("mine.bpf.c: it names no licence"), "{none}");
}

/// The rest of a path that was split where schedulers and options are.
#[test]
fn a_path_that_was_split_is_told() {
    let source = Source::new("split", "");
    let left = source.0.join("a");
    let error = compile_with(&left, "cc").unwrap_err().to_string();
    assert!(error.contains("/a: there is no such file; `,` "), "{error}");
}

/// The compiler would take it for an option.
#[test]
fn a_name_may_begin_as_an_option_does() {
    for cc in compilers() {
        let wrong = format!("int y = zz;\n{OPS}");
        let source = Source::new(&format!("dash-{cc}"), &wrong);
        let path = source.0.join("-dash.bpf.c");
        std::fs::rename(source.path(), &path).unwrap();
        let told = compile_with(&path, cc).unwrap_err().to_string();
        let start = format!("{}:3: ", path.display());
        assert!(told.starts_with(&start), "{cc}: {told}");
        let right = std::fs::read_to_string(&path).unwrap();
        let right = right.replace(
            "int y = zz;",
            "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{\n}",
        );
        std::fs::write(&path, right).unwrap();
        let object = compile_with(&path, cc).unwrap();
        assert_eq!(object.name(), "-dash");
    }
}

#[test]
fn a_path_with_line_breaks_is_refused_in_one_line() {
    let source = Source::new("breaks", OPS);
    let path = source.0.join("a\nb.bpf.c");
    std::fs::rename(source.path(), &path).unwrap();
    let told = compile_with(&path, "cc").unwrap_err().to_string();
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(r"a\nb.bpf.c"), "{told}");
    assert!(told.contains("rename"), "{told}");
}

/// The policy is not to blame.
#[test]
fn a_compiler_that_writes_nothing_is_named() {
    let source = Source::new("nothing", OPS);
    let told = compile_with(&source.path(), "true")
        .unwrap_err()
        .to_string();
    let start = "the C compiler `true` has not written what it should: ";
    assert!(told.starts_with(start), "{told}");
}

#[test]
fn a_file_that_is_not_c_is_told() {
    let source = Source::new("not-c", "");
    let other = source.0.join("results.json");
    std::fs::copy(source.path(), &other).unwrap();
    let error = compile_with(&other, "cc").unwrap_err().to_string();
    assert!(
        error.ends_with("results.json: not a C file: a scheduler's path ends in .bpf.c"),
        "{error}"
    );
}

/// The files of a killed process whose number another one has now.
#[test]
fn folders_that_were_left_are_in_nobodys_way() {
    let left: Vec<PathBuf> = (0..50)
        .map(|n| std::env::temp_dir().join(format!("schedlab-{}-{n}", std::process::id())))
        .collect();
    for folder in &left {
        let _ = std::fs::create_dir(folder);
    }
    let enqueue = "void BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{\n}\n";
    let source = Source::new("left", &format!("{enqueue}{OPS}"));
    let compiled = compile_with(&source.path(), "cc");
    for folder in &left {
        let _ = std::fs::remove_dir(folder);
    }
    assert!(compiled.is_ok(), "{compiled:?}");
}

/// In a process that lives on, as an interpreter does.
#[test]
fn who_edits_a_header_gets_another_policy() {
    let body = format!(
        "#include \"my depth.h\"\nconst volatile u32 depth = DEPTH;\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, depth, enq_flags);\n}}\n{OPS}"
    );
    let source = Source::new("header", &body);
    let path = source.path();
    let scheduler = Scheduler::plain(path.to_str().unwrap());
    let put = |depth: u32| {
        let text = format!("#define DEPTH {depth}\n");
        std::fs::write(source.0.join("my depth.h"), text).unwrap();
    };
    let found = || {
        let selection = schedlab_policies::select(&scheduler).unwrap();
        (selection.object.options()[0].default, selection.sum)
    };
    put(4);
    let first = found();
    assert_eq!(first.0, 4);
    assert_eq!(found(), first);
    put(5);
    let second = found();
    assert_eq!(second.0, 5);
    assert_ne!(first.1, second.1);
    put(4);
    assert_eq!(found(), first);
    let builtin = schedlab_policies::select(&Scheduler::plain("fifo"));
    assert_eq!(builtin.unwrap().sum, None);
}

#[test]
fn floating_point_is_refused() {
    for cc in compilers() {
        let body = format!(
            "volatile u64 half;\nvoid BPF_STRUCT_OPS(mine_enqueue, struct task_struct *p, u64 enq_flags)\n{{\n\thalf = 0.5 * p->scx.slice;\n}}\n{OPS}"
        );
        let error = error("float", &body, cc);
        let (place, what) = error.split_once(": floating point ").expect(&error);
        assert!(place.starts_with("DIR/mine.bpf.c:6"), "{cc}: {error}");
        assert_eq!(what, "is not in BPF: calculate in integers", "{cc}");
    }
}

/// A header of the machine beside ours has tens of errors; the one line is about the line that includes it.
#[test]
fn a_header_that_clashes_is_told_in_one_line() {
    let common = "#include <scx/common.bpf.h>";
    for (above, below, line, header) in [
        ("#include <linux/bpf.h>\n", "", 1, "linux/bpf.h"),
        ("", "#include <linux/bpf.h>", 2, "linux/bpf.h"),
        ("", "#include <string.h>", 2, "string.h"),
        ("#include <stdbool.h>\n", "", 1, "stdbool.h"),
        ("", "#include <lab/lock.h>", 2, "lab/lab.bpf.h"),
    ] {
        for cc in compilers() {
            let source = Source::new(&format!("clash-{cc}"), &format!("{ENQUEUE}}}\n{OPS}"));
            let text = std::fs::read_to_string(source.path()).unwrap();
            assert!(text.starts_with(common), "{text}");
            let text = text.replacen(common, &format!("{above}{common}\n{below}"), 1);
            std::fs::write(source.path(), text).unwrap();
            let told = compile_with(&source.path(), cc).unwrap_err();
            let start = format!("{}:{line}: <", source.path().display());
            assert_eq!(told.lines.len(), 1, "{cc}: {told}");
            let (first, remedy) = (&told.lines[0], format!("<{header}>"));
            assert!(first.starts_with(&start), "{cc}: {told}");
            assert!(first.contains(&remedy), "{cc}: {told}");
            assert!(!first.contains("begin the file"), "{cc}: {told}");
        }
    }
}

/// Native code lacks the cgroup of a task. Where clang or the headers for BPF are missing, as here, the source stays native, and a
/// warning says why; a comment is no call.
#[test]
fn what_is_for_objects_alone_stays_native_with_a_warning_where_bpf_refuses_it() {
    let select = |name: &str, statement: &str| {
        let source = Source::new(name, &format!("{ENQUEUE}{statement}\n}}\n{OPS}"));
        let path = source.path();
        let text = std::fs::read_to_string(&path).unwrap();
        let line = text.lines().position(|line| line.contains("cgroup"));
        let place = format!("{}:{}: ", path.display(), line.expect("the call") + 1);
        let selected = schedlab_policies::select(&Scheduler::plain(path.to_str().unwrap()));
        (place, selected.unwrap().warnings)
    };
    let (place, warnings) = select("alone", "scx_bpf_task_cgroup(p);");
    let start = format!(
        "{place}scx_bpf_task_cgroup() is in the virtual kernel for objects alone, and it cannot be compiled for BPF: "
    );
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let reason = warnings[0].strip_prefix(&start);
    let reason = reason.unwrap_or_else(|| panic!("{warnings:?}"));
    match schedlab_policies::clang::find() {
        Ok(_) => assert_eq!(reason, "this program has no headers for BPF"),
        Err(_) => assert!(reason.contains("clang"), "{reason}"),
    }
    let (_, warnings) = select("said", "/* unlike scx_bpf_task_cgroup(p) */");
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// A source with headers of its own is refused natively and accepted by BPF: it runs as an object, with a line that says so.
/// Where BPF refuses it, too, or a function is missing, the native compiler's messages are shown.
#[test]
fn what_bpf_alone_accepts_runs_as_an_object() {
    if let Err(why) = schedlab_policies::clang::find() {
        return schedlab_testing::skipped(&format!("sources that BPF alone accepts: {why}"));
    }
    let objects = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/objects"));
    let text = std::fs::read_to_string(objects.join("prototypes.bpf.c")).unwrap();
    let select = |text: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.bpf.c");
        std::fs::copy(objects.join("kernel.h"), folder.path().join("kernel.h")).unwrap();
        std::fs::write(&path, text).unwrap();
        let native = schedlab_policies::compile(&path).map(|_| ());
        let name = path.to_str().unwrap();
        let selected = schedlab_policies::select(&Scheduler::plain(name));
        (native.unwrap_err().lines, selected)
    };
    let (native, selected) = select(&text);
    let warnings = selected.unwrap().warnings;
    let expected = format!(
        "{}; compiled for BPF instead, and simulated as an object",
        native[0]
    );
    assert_eq!(*warnings, [expected]);
    let with_call = text.replace("switches++;", "switches++; scx_bpf_absent();");
    let missing = format!(
        "extern void scx_bpf_absent(void) __attribute__((section(\".ksyms\")));\n{with_call}"
    );
    for refused in [missing, text.replace("switches++;", "switches++")] {
        let (native, selected) = select(&refused);
        assert_eq!(selected.unwrap_err().to_string(), native.join("\n"));
    }
}
