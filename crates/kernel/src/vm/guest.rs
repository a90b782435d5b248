//! Prepares the virtual machine for the command: a writable layer over the host's files, the kernel's modules and
//! configuration where programs look for them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::image::KernelImage;
use super::tools::Tools;
use crate::error::{At as _, Result};
use crate::inside::INSIDE;
use crate::kernel_log;

/// Environment that a command in the guest inherits. The rest of the host's has no meaning there.
const INHERITED: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TERM",
    "XDG_CACHE_HOME",
    "BPF_CLANG",
    "COLUMNS",
    "NO_COLOR",
];

/// Also inherited: everything that begins like this.
const INHERITED_PREFIXES: &[&str] = &["LC_", "RUST_", "SCHEDLAB_", "CARGO_"];

/// Set in guests whose CPUs are emulated in software.
pub const EMULATED: &str = "SCHEDLAB_VM_EMULATED";

/// The file that grows while the guest lives.
pub const BEATS: &str = "beats";

/// Writes `init` (run by virtme-ng's init), `command` (run inside the layer) and `modprobe`.
pub fn write_scripts(
    share: &Path,
    kernel: &KernelImage,
    tools: &Tools,
    writable: &[PathBuf],
    command: &[OsString],
    beats: bool,
    emulated: bool,
) -> Result<()> {
    let cwd = std::env::current_dir().at(".")?;
    write(
        share,
        "modprobe",
        &format!(
            "#!/bin/sh\nexec {} -d {} \"$@\"\n",
            quote(&tools.modprobe),
            quote(kernel.modules_base())
        ),
    )?;
    write(
        share,
        "init",
        &init_script(share, kernel, tools, writable, beats),
    )?;
    write(
        share,
        "command",
        &command_script(share, command, &cwd, emulated),
    )
}

fn init_script(
    share: &Path,
    kernel: &KernelImage,
    tools: &Tools,
    writable: &[PathBuf],
    beats: bool,
) -> String {
    let writable: Vec<String> = writable.iter().map(quote).collect();
    let writable = writable.join(" ");
    let share = quote(share);
    let modules = quote(kernel.modules());
    let config = quote(&kernel.config);
    let modprobe = quote(&tools.modprobe);
    let base = quote(kernel.modules_base());
    let collected = kernel_log::COLLECTED;
    // Of the highest class that there is, so that no scheduler keeps it from running.
    let beat = match beats {
        true => {
            r#"chrt -f 50 /bin/sh -c "while :; do echo >>\"$share/beats\"; sleep 5; done" >/dev/null 2>&1 &"#
        }
        false => "",
    };
    // virtme-ng mounts /proc, /sys with its file systems, /dev and the share. The root is the
    // host's, read-only.
    format!(
        r#"#!/bin/sh
share={share}
top=/run/schedlab
root=$top/root
fail() {{ echo "schedlab: guest set-up: $*" >&2; exit 1; }}
export PATH="$PATH:/usr/sbin:/sbin"

# Modules that the kernel asks for by itself are not under the host's /lib/modules either.
echo "$share/modprobe" >/proc/sys/kernel/modprobe
{modprobe} -d {base} overlay || fail "no overlay file system"

mkdir -p $top && mount -t tmpfs -o size=75%,mode=0755 schedlab $top || fail "no memory for the layer"
mkdir $top/upper $top/work $root
mount -t overlay -o lowerdir=/,upperdir=$top/upper,workdir=$top/work schedlab $root ||
    mount -t overlay -o xino=off,lowerdir=/,upperdir=$top/upper,workdir=$top/work schedlab $root ||
    fail "cannot put a layer over the root"
for dir in proc sys dev; do mount --rbind /$dir $root/$dir || fail "$dir"; done
mount -t tmpfs -o mode=0755 run $root/run || fail "run"
for dir in "$share" {writable}; do
    mkdir -p "$root/$dir" && mount --bind "$dir" "$root/$dir" || fail "$dir"
done
[ -d $root/sys/fs/bpf ] && mount -t bpf bpf $root/sys/fs/bpf 2>/dev/null

# libbpf and depmod's users look here.
mkdir -p $root/boot $root/usr/lib/modules $root/lib/modules
cp {config} "$root/boot/config-$(uname -r)" || fail "kernel configuration"
[ -e "$root/lib/modules/$(uname -r)/modules.dep" ] ||
    {{ rm -rf "$root/lib/modules/$(uname -r)"; ln -s {modules} "$root/lib/modules/$(uname -r)"; }}

dmesg >$top/before 2>/dev/null
lines=$(wc -l <$top/before 2>/dev/null || echo 0)
: >"$share/booted"
{beat}
chroot $root /bin/sh "$share/command" >"$share/stdout" 2>"$share/stderr" </dev/null
code=$?
dmesg 2>/dev/null | tail -n "+$((lines + 1))" | grep -E '{collected}' >"$share/kernel-log"
echo $code >"$share/code.new"
sync
mv "$share/code.new" "$share/code"
"#
    )
}

fn command_script(share: &Path, command: &[OsString], cwd: &Path, emulated: bool) -> String {
    let mut script = String::from("cd ");
    script.push_str(&quote(cwd));
    script.push_str(" || exit 1\nexec env -i ");
    script.push_str(INSIDE);
    script.push('=');
    script.push_str(&quote(share));
    script.push(' ');
    if emulated {
        script.push_str(EMULATED);
        script.push_str("=1 ");
    }
    let mut path = super::tools::path_with_sbin();
    // A command may call this very program.
    if let Some(folder) = std::env::current_exe()
        .ok()
        .as_deref()
        .and_then(Path::parent)
    {
        path.push(":");
        path.push(folder);
    }
    script.push_str(&quote(prefixed("PATH=", &path)));
    for (name, value) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let wanted =
            INHERITED.contains(&text) || INHERITED_PREFIXES.iter().any(|p| text.starts_with(p));
        if wanted && ![INSIDE, EMULATED].contains(&text) {
            script.push(' ');
            script.push_str(&quote(prefixed(&format!("{text}="), &value)));
        }
    }
    // A command with a `=` in its name would be taken for one more variable.
    script.push_str(" /bin/sh -c 'exec \"$@\"' sh");
    for word in command {
        script.push(' ');
        script.push_str(&quote(word));
    }
    script.push('\n');
    script
}

fn prefixed(prefix: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(prefix);
    word.push(value);
    word
}

fn write(share: &Path, name: &str, text: &str) -> Result<()> {
    let path = share.join(name);
    fs::write(&path, text).at(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).at(&path)
}

/// Returns a word for a shell (what is no UTF-8 is replaced).
pub fn quote(word: impl AsRef<OsStr>) -> String {
    schedlab_trace::shell_word(&word.as_ref().to_string_lossy())
}
