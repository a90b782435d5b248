//! `docs/machines.md` shows what the profiles say. After a change of a profile:
//! `SCHEDLAB_BLESS=1 cargo test -p schedlab-machine --test docs`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use schedlab_machine::{Machine, SourceKind};

const HEAD: &str = "\
# Machines

Read this page to choose a machine for a simulation, or to check the source of one of its numbers. Each table lists a profile's constants
with their sources.

A machine is a file in `machines/` (or one of your own: `-m path/to/file.toml`). A new file there is a new profile with
nothing else to edit. `schedlab calibrate` writes a profile of the machine that it runs on, and `schedlab calibrate --from` one of
another machine ([below](#describe-your-own-machine)).

Every number stands beside its source, `field = { value = …, source = \"…\" }`, and a number without one does not load.
A source begins with one of these words:

| word | meaning |
|---|---|
| `measured` | measured by us, with the spread |
| `published` | in a paper, report or measurement that somebody published |
| `data sheet` | in the maker's manual or data sheet |
| `kernel` | in the source code or documentation of the kernel that is modelled |
| `derived` | computed from other sourced numbers |
| `tuned` | found by fitting the model to the rows in `calibrated_on` |
| `copied` | taken from the named profile of another machine, with the source that it has there |
| `guess` | nobody knows; a plausible order of magnitude |

A profile whose `calibrated_on` is empty was fitted to no published result: it is made of data sheets and guesses.
`tuning_candidates` are the only fields that fitting may change. The meaning of each field is documented at its declaration in
`crates/machine/src/profile.rs`.

With `-c N` a run has the first N CPUs, as `maxcpus=N` would leave them. On a regular machine numbers run through one hardware thread
of every core, cache by cache and node by node, and only then through the second threads, unless the profile says otherwise.

This file is generated from the profiles; a test compares the two.

## Describe your own machine

Begin with a file that the machine itself writes. On that machine, run one of these commands:

| command | tells |
|---|---|
| `lstopo --of xml mine.xml` (hwloc) | cores, caches with their sizes, nodes, distances, nodes without memory, capacities |
| `cp -r /sys/devices/system/cpu /sys/devices/system/node mine` | the same, as the kernel has it |
| `lscpu -p >mine.csv` | cores, caches and nodes, without sizes and distances |

Then write the profile, read its head, and run something on it:

```
schedlab calibrate --from mine.xml -o mine.toml
schedlab sim cpu -m mine.toml
```

Costs cannot be told from afar. They are copied from the nearest built-in profile: of the profiles of kernels with sched_ext the one
whose numbers of CPUs, hardware threads a core, last-level caches and nodes are the fewest doublings away, where cores that differ
among each other count as two doublings. The head of the file names that profile, and each copied number says `copied: from …`.
`schedlab calibrate`, run on the machine itself, measures the costs instead.

### Write the topology

A regular machine is four numbers, all of the same kind: `nodes`, `llcs_per_node`, `cores_per_llc` and `threads_per_core`.
`numbering = \"core-by-core\"` numbers all hardware threads of a core side by side, as POWER does; without it, second threads come last.

Any other machine is a list, `topology.cpus`, with one `[core, llc, node]` for each CPU: the numbers of its core, its last-level cache
and its node, each counted from 0 over the whole machine. CPUs with the same core number are hardware threads of one core. The place
in the list is the number of the CPU, so any numbering can be written. A core lies in one cache, and a cache in one node.

These fields may be added to `[topology]`:

| field | meaning |
|---|---|
| `llc_bytes` | size of the last-level caches: one number for all, or one for each |
| `distances` | a row for each node, as `numactl --hardware` shows them: 10 to itself, more to others; more rows than nodes with CPUs are nodes of memory alone |
| `nodes_without_memory` | the nodes whose CPUs have all their memory in another one |

`llc_bytes` decides how much of a task's working set comes again when the task moves to another last-level cache: as much as that
cache holds. With `interference.beyond_llc_pct`, a task whose working set does not fit into the cache is slower by that percentage, for
the part that does not fit. `distances` scale what comes again from other nodes, the profile's number being that of the nearest two;
they are the order in which sched_ext looks for idle CPUs by node. The lines that the scheduler itself touches cost the same between
all nodes.

### Write the kinds of core

Where cores differ, each kind has a section `[core_kinds.NAME]`:

| field | meaning |
|---|---|
| `cores` | the cores of this kind by the numbers in the topology, as `\"0-3,8\"`; each core must be of one kind |
| `capacity` | how much a core does in a time, of 1024 for the fastest one; Linux shows it as `cpu_capacity` in sysfs |
| `cache_bytes` | size of its last private cache, for working sets |
| `smt_shares_pct` | throughput of one hardware thread, in per cent, while 2, 3, 4 … threads of the core run |

A field that is left out is that of the machine: capacity 1024, `memory.cache_bytes`, `interference.smt_share_pct`. Tasks run at the
capacity of their core, in system calls too; interrupts and the scheduler's own paths take what `paths` says on every core. Policies
get the capacity from `scx_bpf_cpuperf_cap()`, and `-s kernel` places tasks by it. Frequencies are fixed.

### Write the bus

`memory.bus_ps` is the time one line occupies the bus of a node: the front-side bus, or the memory controller. Where several processor
buses join in one node, `memory.llcs_per_bus` says how many caches each has. With 0, a bus carries everything at once. The kernel's lines
that come from memory or another node's cache wait for their turn, and so do the lines of tasks that go over memory (`stream`, `lat_ctx`
with data, `mem` of rt-app). Two further fields add to that:

| field | meaning |
|---|---|
| `stream_ps` | time one CPU alone needs for each line when it goes over memory in order; without it, as long as a miss |
| `written_pct` | share, in per cent, of the lines of an application (`evict_lines_per_ms`) that it writes, so that they cross the bus twice. With it, computing occupies the bus, and so do modified lines that a cache writes back |

Applications that ask for more than the bus carries are slower: a CPU that asks for less than an equal share gets all of it, the others
share the rest equally. While all of them compute, the kernel's accesses still get a turn in each round.

`schedlab calibrate` measures `stream_ps` on one CPU, and `bus_ps` with all CPUs of a node at once, if they go over memory a fifth slower
than the sum of what each core does alone. It goes over four times as much as the last-level caches hold, at most 2 GB; where the caches hold more
than half of that, the fields stay guesses.

### Write the objects that calls share

A section `[shared.NAME]` is an object of the kernel that calls of several CPUs use at once
([ADR 11](adr/0011-shared-kernel-objects.md)). A call uses its objects in the order of their names; their time comes on top of the
call's time in `paths`.

| field | meaning |
|---|---|
| `paths` | the calls that use it: `send`, `receive`, `pipe-write`, `pipe-read`, `futex`, `fork`, `exec`, `fault` (a page fault), `exit`; with a section `[tcp]`, each packet through the loopback device: `transmit` |
| `scope` | which calls use the same one: all of the `machine`, all of a `process`, all about an `object` (a socket, pipe or futex), the write and the read of a `message` |
| `hold_ns` | how long its spin lock is held, besides accesses; without it, there is no lock. Of messages: the lock of the list of free buffers |
| `atomics` | atomic operations on its first line, besides the lock's |
| `lines` | further lines that a call writes; of messages, those besides the data |
| `per_cpu` | of messages: free buffers that a CPU keeps; 64 without it |
| `buckets` | of objects: so many locks, which they share by their number, as in a hash table |

### Write TCP over loopback

With a section `[tcp]`, a connection of `chat` or `volano` gathers messages while an acknowledgement is under way, as Linux does for
programs that do not set `TCP_NODELAY`. Without it, a socket passes each message on at once.

| field | meaning |
|---|---|
| `mss_bytes` | bytes of a full segment: a shorter one waits while a short one is unacknowledged |
| `window_bytes` | bytes that a reader's end takes without being read |
| `append_ns` | a write that only appends its message to the sender's queue; one that transmits takes `paths.socket_send_ns` |
| `ack_ns` | an acknowledgement without data |

### Write the background

A section `[background.NAME]` is a task that runs beside any workload: a kernel thread, a daemon. `-m MACHINE:quiet` leaves them out.

| field | meaning |
|---|---|
| `period_us` | mean time from one wakeup to the next; each is drawn from half of it to one and a half of it |
| `run_us` | CPU time of each wakeup |
| `per_cpu` | whether each CPU has one that is bound to it |
| `static_prio` | its nice level and 20; 20 without it |

`schedlab calibrate` measures it: for a minute (`--idle TIME`; 0 leaves it out) it computes nothing and looks at `/proc` before and
after. The other programs of the machine should do nothing meanwhile: if they take more than 10 % of the CPUs' time, by their own times or
by `/proc/stat`, the profile has no background, and its head says so.

- **Wakeups** of a task are its voluntary switches (`/proc/PID/task/TID/status`), as it sleeps once after each. The number of time slices
  in `schedstat` would count preemptions, too.
- **CPU time** is the first number of `/proc/PID/task/TID/schedstat`, in nanoseconds.
- **A section** is all tasks of one name and nice level that are bound to a CPU alike: the name up to a `/` or `:`, or without the digits
  at its end. `kworker` are the workers of CPUs, `kworker-u` workers of no CPU, and `kworker-p0` workers of nice level −20. Only kernel
  threads that may run on one CPU alone are `per_cpu`.
- **The numbers** are means: the time between wakeups of all its tasks, of one CPU if it is `per_cpu`, and the CPU time of a wakeup in
  whole microseconds, at least 1.
- **The choice:** the largest sections by CPU time or wakeups, until they have 95 % of both, at most twelve. The head says the share of
  the others, and schedlab's own share, which is in no section.

No other source is used. A trace of the scheduler, by BPF or perf, takes privileges, and wakes for its own sake; it has the times of wakeups,
for which there is no field. So bursts are lost: a section's wakeups are as evenly apart as `period_us` says. Lost, too, are tasks that begin and
end within the minute, which are counted in the head, and the interrupts themselves. A real-time thread has a section of nice level −20.
In a container only its own processes can be seen, which the head says.

The built-in profiles of the studies have a background, the others have none. The machines of Linux 2.4 had `kswapd`, which wakes once a second
(`mm/vmscan.c`), `kupdated`, once in five (`fs/buffer.c`), and some daemons, together a few hundredths of one per cent of a CPU. No source
says how long they ran, so their times are guesses ([what they change](calibration.md#netfinity-8500r-chat-and-reflex)).
The profiles of today's machines describe no single machine, and each documented result was made without a background. `-m MACHINE:background`
adds the sections of `xeon-e5645-2x6x2`, guesses for a server, to a machine that has none. For numbers of your own, append
the sections that `calibrate` measured on a machine with the same programs, with `per_cpu` ones as they are: their period is one
CPU's. `calibrate --from` copies none, not from `xeon-e5645-2x6x2` either: daemons belong to a system, not to its processors.

### An example

A machine with two fast cores of two hardware threads, which share 8 MB of cache, and two slow ones with 2 MB:

```toml
[topology]
cpus = { value = [[0, 0, 0], [0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0], [3, 1, 0]], source = \"measured: lscpu -p\" }
llc_bytes = { value = [8_388_608, 2_097_152], source = \"measured: lscpu\" }

[core_kinds.fast]
cores = { value = \"0-1\", source = \"measured: lscpu -p\" }
smt_shares_pct = { value = [62], source = \"measured: sysbench cpu, one thread and two on a core\" }

[core_kinds.slow]
cores = { value = \"2-3\", source = \"measured: lscpu -p\" }
capacity = { value = 540, source = \"measured: /sys/devices/system/cpu/cpu4/cpu_capacity\" }
```

The other sections are those of any profile: take a built-in one from `machines/` and replace its `[topology]`.

## Profiles

";

fn render() -> String {
    let machines: Vec<Machine> = Machine::builtin_names()
        .map(|name| Machine::builtin(name).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let mut out = String::from(HEAD);
    out.push_str("| profile | CPUs | what it is | numbers | copied | guesses | calibrated on |\n|---|---|---|---|---|---|---|\n");
    for machine in &machines {
        let all = machine.provenance();
        let of_kind = |kind| all.iter().filter(|one| one.kind == kind).count();
        let rows = match machine.calibrated_on.as_slice() {
            [] => "nothing".to_owned(),
            rows => rows
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        };
        let _ = writeln!(
            out,
            "| [`{0}`](#{0}) | {1} | {2} | {3} | {4} | {5} | {rows} |",
            machine.name,
            machine.topology.nr_cpus(),
            machine.summary,
            all.len(),
            of_kind(SourceKind::Copied),
            of_kind(SourceKind::Guess),
        );
    }
    for machine in &machines {
        let _ = writeln!(out, "\n## {}\n\n{}.\n", machine.name, machine.summary);
        if !machine.tuning_candidates.is_empty() {
            let fields: Vec<String> = machine
                .tuning_candidates
                .iter()
                .map(|field| format!("`{field}`"))
                .collect();
            let _ = writeln!(out, "May be tuned: {}.\n", fields.join(", "));
        }
        out.push_str("| field | value | source |\n|---|---|---|\n");
        for one in machine.provenance() {
            let _ = writeln!(out, "| `{}` | {} | {} |", one.field, one.value, one.source);
        }
    }
    out
}

#[test]
fn the_document_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/machines.md");
    let rendered = render();
    if env::var_os("SCHEDLAB_BLESS").is_some() {
        fs::write(&file, &rendered).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == rendered,
        "docs/machines.md differs from the profiles: SCHEDLAB_BLESS=1 cargo test -p schedlab-machine --test docs"
    );
}

/// The example of the page is a profile.
#[test]
fn the_example_loads() {
    let example = HEAD.split("```toml\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let text = Machine::builtin("laptop").unwrap().to_toml();
    let start = text.find("[topology]").unwrap();
    let end = start + text[start..].find("\n\n").unwrap();
    let text = format!("{}{example}{}", &text[..start], &text[end..]);
    let machine = Machine::from_toml("example", &text).unwrap_or_else(|error| panic!("{error}"));
    let traits = machine.core_traits();
    let capacities: Vec<u32> = traits.iter().map(|one| one.capacity).collect();
    assert_eq!(capacities, [1_024, 1_024, 1_024, 1_024, 540, 540]);
    assert_eq!((traits[1].share_pct(1), traits[5].share_pct(0)), (62, 100));
}
