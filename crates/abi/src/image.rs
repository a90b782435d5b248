//! A private copy of an object in this process.

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::sync::Arc;

use schedlab_engine::KernelVersion;
use schedlab_machine::Machine;

use crate::bpf;
use crate::kconfig::{self, Pages, Relocation, Values};
use crate::layout::Ops;
use crate::object::NativeObject;
use crate::options::Settings;

/// Why a copy could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The operating system refused memory or a file.
    #[error("a copy of {policy} cannot be loaded: {reason}")]
    System {
        /// The policy.
        policy: String,
        /// Why.
        reason: String,
    },
    /// The simulated machine is larger than a CPU mask.
    #[error(
        "{policy}: {cpus} CPUs are more than the {} that a CPU mask has room for",
        crate::layout::NR_CPUS_MAX
    )]
    Cpus {
        /// The policy.
        policy: String,
        /// CPUs asked for.
        cpus: usize,
    },
    /// A variable of the kernel's configuration whose type does not hold its value.
    #[error("{policy}: {reason}")]
    Kconfig {
        /// The policy.
        policy: String,
        /// Where and why.
        reason: String,
    },
    /// The name in the ops table has no end (`bpf_obj_name_cpy()`).
    #[error(
        "{policy}: the name in its struct sched_ext_ops is too long: the kernel takes at most 127 characters"
    )]
    Name {
        /// The policy.
        policy: String,
    },
    /// It is an object, which cannot be audited.
    #[error("{reason}")]
    Unwatched {
        /// The reason, with the policy's path.
        reason: String,
    },
    /// It is an object that cannot become native code.
    #[error("{policy}: {reason}")]
    Object {
        /// The policy.
        policy: String,
        /// Why.
        reason: String,
    },
    /// An op that never sleeps is a sleepable program (`bpf_scx_check_member()`).
    #[error(
        "{policy}: the kernel refuses a sleepable ops.{op}: define it with BPF_STRUCT_OPS(), not BPF_STRUCT_OPS_SLEEPABLE()"
    )]
    Sleepable {
        /// The policy.
        policy: String,
        /// The op.
        op: &'static str,
    },
}

/// A loaded copy with its own globals.
pub struct Image {
    object: Arc<NativeObject>,
    form: Form,
}

enum Form {
    Native(Native),
    Bpf(bpf::Image),
}

impl Image {
    /// Loads a copy and gives its options and the kernel's configuration their values.
    pub fn load(
        object: &Arc<NativeObject>,
        settings: &Settings,
        kconfig: &Values,
        (machine, version): (&Machine, KernelVersion),
    ) -> Result<Image, LoadError> {
        for declared in &object.kconfig {
            declared
                .check(kconfig)
                .map_err(|reason| LoadError::Kconfig {
                    policy: object.name().to_owned(),
                    reason,
                })?;
        }
        let form = match &object.program {
            None => Form::Native(Native::load(object, settings, kconfig)?),
            Some(program) => {
                let options = object.options();
                let image =
                    bpf::Image::load(program, (machine, version), options, settings, kconfig);
                Form::Bpf(image.map_err(|reason| LoadError::Object {
                    policy: object.name().to_owned(),
                    reason,
                })?)
            }
        };
        Ok(Image {
            object: Arc::clone(object),
            form,
        })
    }

    /// The place of an address of the object in this copy.
    pub fn pointer(&self, address: u64) -> *mut u8 {
        match &self.form {
            Form::Native(native) => (native.base + address) as *mut u8,
            Form::Bpf(image) => image.pointer(address),
        }
    }

    /// The address in the object of a place in this copy.
    #[inline]
    pub fn offset(&self, place: usize) -> Option<u64> {
        match &self.form {
            Form::Native(native) => {
                let offset = (place as u64).wrapping_sub(native.base);
                (offset < self.object.span).then_some(offset)
            }
            Form::Bpf(image) => image.offset(place),
        }
    }

    /// The object it is a copy of.
    pub fn object(&self) -> &Arc<NativeObject> {
        &self.object
    }

    /// Returns the copy of an object, if it is one.
    pub fn bpf(&self) -> Option<&bpf::Image> {
        match &self.form {
            Form::Native(_) => None,
            Form::Bpf(image) => Some(image),
        }
    }

    /// Its table of ops.
    pub fn ops(&self) -> Ops {
        match (&self.form, &self.object.program) {
            (Form::Bpf(image), Some(program)) => image.ops(program),
            // SAFETY: the object's debug information says that an ops table lies there.
            _ => unsafe { self.pointer(self.object.ops).cast::<Ops>().read() },
        }
    }

    /// Between which addresses its code lies.
    pub fn code(&self) -> (usize, usize) {
        match &self.form {
            Form::Native(native) => {
                let (base, code) = (native.base as usize, &self.object.code);
                (base + code.start as usize, base + code.end as usize)
            }
            Form::Bpf(image) => {
                let code = image.code().code.range();
                (code.start, code.end)
            }
        }
    }
}

/// A copy of a policy that was compiled natively.
struct Native {
    handle: *mut c_void,
    base: u64,
    /// Holds the variables of the kernel's configuration, if the policy uses any.
    kconfig: Option<Pages>,
    /// The dynamic linker identifies objects by the number of this file: were it closed and the number used again,
    /// `dlopen` would return the old object. So it stays open until after `dlclose`.
    _file: File,
}

impl Native {
    fn load(
        object: &Arc<NativeObject>,
        settings: &Settings,
        kconfig: &Values,
    ) -> Result<Native, LoadError> {
        let error = |reason: String| LoadError::System {
            policy: object.name().to_owned(),
            reason,
        };
        let last = |what: &str| error(format!("{what}: {}", std::io::Error::last_os_error()));
        let pages = match object.relocations.iter().any(Relocation::is_variable) {
            true => Some(Pages::new(kconfig).map_err(|problem| error(problem.to_string()))?),
            false => None,
        };
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"schedlab-policy".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(last("memfd_create"));
        }
        // SAFETY: the descriptor is new and ours.
        let mut file = unsafe { File::from_raw_fd(fd) };
        // Debug information lies behind everything that is mapped.
        file.write_all(&object.elf()[..object.image_bytes])
            .map_err(|problem| error(problem.to_string()))?;
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .expect("a number has no NUL");
        // SAFETY: nothing of the object runs: `NativeObject::from_elf` has refused what has constructors, destructors or
        // functions that choose others.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failed dlopen() dlerror() returns a C string.
            let reason = unsafe { CStr::from_ptr(libc::dlerror()) };
            return Err(error(reason.to_string_lossy().into_owned()));
        }
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: RTLD_DI_LINKMAP stores a pointer to the link map.
        let status = unsafe {
            libc::dlinfo(
                handle,
                libc::RTLD_DI_LINKMAP,
                std::ptr::from_mut(&mut map).cast(),
            )
        };
        if status != 0 || map.is_null() {
            return Err(error("dlinfo: the object has no link map".to_owned()));
        }
        // SAFETY: the link map lives as long as the handle; its first member is the load address.
        let base = unsafe { (*map).l_addr };
        let native = Native {
            handle,
            base,
            kconfig: pages,
            _file: file,
        };
        native.set_options(object, settings).map_err(error)?;
        native.relocate(object).map_err(error)?;
        Ok(native)
    }

    /// Writes the values of options.
    fn set_options(&self, object: &NativeObject, settings: &Settings) -> Result<(), String> {
        for &(index, value) in &settings.values {
            let option = &object.options()[index];
            let bytes = value.to_le_bytes();
            self.write(option.address, &bytes[..option.bytes.into()])?;
        }
        Ok(())
    }

    /// Writes the addresses of the symbols that the loader provides.
    fn relocate(&self, object: &NativeObject) -> Result<(), String> {
        for relocation in &object.relocations {
            let address = kconfig::address(relocation, self.kconfig.as_ref());
            self.write(relocation.place, &address.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes to a variable of the object. Clang keeps `const volatile` ones in read-only pages, gcc does not; a private
    /// mapping can be made writable either way.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        let place = (self.base + address) as *mut u8;
        let page = place as usize & !4095;
        let end = (place as usize + bytes.len()).next_multiple_of(4096);
        // SAFETY: the pages belong to our private mapping of the object's data.
        let status = unsafe {
            libc::mprotect(
                page as *mut c_void,
                end - page,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if status != 0 {
            return Err(format!("mprotect: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the variable is that large, and no policy code runs yet.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}

/// The public beginning of glibc's `struct link_map`.
#[repr(C)]
struct LinkMap {
    l_addr: u64,
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: nothing of the copy is in use: its owner drops it last.
        unsafe { libc::dlclose(self.handle) };
    }
}
