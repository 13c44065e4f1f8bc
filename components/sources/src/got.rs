//! The application's calls, turned to us where they leave it: in the global offset tables of the application and its
//! libraries. Open MPI, and every library that it needs itself, is left alone; its Fortran bindings are not among those,
//! they only pass the application's calls on.
//!
//! A library that is loaded later is reached by [`renew`], which is cheap where nothing was loaded; `dlsym` (`later`) and
//! the calls that are turned to us anyway ask for it.

use std::collections::HashSet;
use std::ffi::{c_int, c_void, CStr, CString};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Which function stands in for a name.
pub type Replacement = dyn Fn(&[u8]) -> Option<usize> + Sync;

/// How many objects the process had loaded, ever, when the tables were looked at last.
static LOADED: AtomicU64 = AtomicU64::new(0);
static CURRENT: Mutex<Option<&'static Replacement>> = Mutex::new(None);

/// A slot that was changed, and what was in it.
struct Slot {
    address: usize,
    before: usize,
    object: String,
}

/// What can be undone, where that is wanted.
static CHANGED: Mutex<Vec<Slot>> = Mutex::new(Vec::new());
static REMEMBERS: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Turns the application's calls to us, now and in [`renew`]. Says whether every slot could be written.
pub fn replace(replacement: &'static Replacement) -> bool {
    *lock(&CURRENT) = Some(replacement);
    LOADED.store(loaded(), Ordering::Relaxed);
    scan(replacement, false)
}

/// The same, and [`give_back`] can undo it for objects that turn out to be Open MPI's.
pub fn replace_for_now(replacement: &'static Replacement) -> bool {
    REMEMBERS.store(true, Ordering::Relaxed);
    replace(replacement)
}

/// Reaches the objects that were loaded since. Costs some 100 ns where there are none.
///
/// An object that another thread is loading is waited for, so this is for threads that may wait for the loader.
pub fn renew() {
    let now = loaded();
    if LOADED.swap(now, Ordering::Relaxed) == now {
        return;
    }
    let current = *lock(&CURRENT);
    if let Some(replacement) = current {
        scan(replacement, true);
    }
}

/// Undoes what [`replace_for_now`] did to objects that are Open MPI's, or that it needs.
pub fn give_back() {
    let objects = objects();
    let host = host_objects(&objects);
    lock(&CHANGED).retain(|slot| {
        let Some(object) = objects.iter().find(|object| object.path == slot.object) else { return true };
        if !host.contains(object.file()) {
            return true;
        }
        // SAFETY: a slot of an object that is still loaded, with what the loader had put there.
        unsafe { object.writable(|| std::ptr::write_volatile(slot.address as *mut usize, slot.before)) };
        false
    });
}

/// The function that stands in for a name now.
pub fn replaced(name: &[u8]) -> Option<usize> {
    let current = *CURRENT.try_lock().ok()?;
    current?(name)
}

/// Whether an address is in a library of the system, or of Open MPI: not in the application's own.
pub fn is_the_systems(address: usize) -> bool {
    // SAFETY: places of ours; the name is the loader's, of an object that the caller has found something in.
    let path = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return false;
        }
        CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned()
    };
    let file = path.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-", "libmpi.so", "libstdc++.so", "linux-vdso", "libpthread", "librt", "libdl"]
        .iter()
        .any(|name| file.starts_with(name))
}

/// How many objects were loaded since the start of the process.
fn loaded() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: glibc's description and the number below.
        unsafe { *count.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut count = 0u64;
    // SAFETY: glibc calls `first` once, with its own description and our number.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut count).cast()) };
    count
}

fn objects() -> Vec<Object> {
    let mut objects: Vec<Object> = Vec::new();
    // SAFETY: glibc calls `collect` for every loaded object, with its own descriptions and our vector.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut objects).cast()) };
    objects
}

fn scan(replacement: &Replacement, later: bool) -> bool {
    let objects = objects();
    let host = host_objects(&objects);
    let mut all = true;
    for object in objects.iter().filter(|object| !host.contains(object.file())) {
        // The loader lists an object before it has filled its tables; to open it again waits for that.
        let held = if later && !object.path.is_empty() {
            let Ok(path) = CString::new(object.path.as_str()) else { continue };
            // SAFETY: only opens what is loaded already.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if handle.is_null() {
                continue; // gone again
            }
            handle
        } else {
            std::ptr::null_mut()
        };
        // SAFETY: the dynamic section of an object that stays loaded meanwhile.
        all &= unsafe { object.patch(replacement) };
        if !held.is_null() {
            // SAFETY: opened above.
            unsafe { libc::dlclose(held) };
        }
    }
    all
}

struct Object {
    path: String,
    base: u64,
    dynamic: *const Dynamic,
    needs: Vec<String>,
    /// Memory that the loader has made read-only after relocation; whole pages, maybe none.
    protected: (usize, usize),
}

impl Object {
    fn file(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Open MPI's own objects, and all that they need, by file name.
fn host_objects(objects: &[Object]) -> HashSet<String> {
    // Those that Open MPI is known to need are named too: the application may have loaded them before it.
    let ours = [
        "libmpi.so",
        "libopen-",
        "libredmpi",
        "mca_",
        "libpmix",
        "libevent",
        "libhwloc",
        "libc.so",
        "libm.so",
        "libdl.so",
        "libpthread.so",
        "librt.so",
        "libasan.so",
        "libubsan.so",
        "libtsan.so",
        "ld-linux",
        "linux-vdso",
    ];
    let mut host: HashSet<String> = HashSet::new();
    let mut next: Vec<&Object> =
        objects.iter().filter(|object| ours.iter().any(|name| object.file().starts_with(name))).collect();
    while let Some(object) = next.pop() {
        if host.insert(object.file().to_owned()) {
            // A library may be needed by a shorter name than that of the file that was loaded.
            let needed = |other: &&Object| object.needs.iter().any(|need| other.file().starts_with(need.as_str()));
            next.extend(objects.iter().filter(|other| !other.path.is_empty()).filter(needed));
        }
    }
    host
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void) -> c_int {
    // SAFETY: glibc's description, valid during the call, and the vector that `replace` passes.
    let (path, base, headers, objects) = unsafe {
        let info = &*info;
        let path = if info.dlpi_name.is_null() { c"" } else { CStr::from_ptr(info.dlpi_name) };
        (
            path.to_string_lossy().into_owned(),
            info.dlpi_addr,
            std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
            &mut *objects.cast::<Vec<Object>>(),
        )
    };
    if let Some(header) = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC) {
        if !path.contains("linux-vdso") {
            let dynamic = (base + header.p_vaddr) as *const Dynamic;
            // SAFETY: the object's dynamic section.
            let needs = unsafe { needs(base, dynamic) };
            objects.push(Object { path, base, dynamic, needs, protected: protected(base, headers) });
        }
    }
    0
}

/// The libraries that an object needs.
///
/// # Safety
/// `dynamic` is the dynamic section of an object loaded at `base`.
unsafe fn needs(base: u64, dynamic: *const Dynamic) -> Vec<String> {
    let (mut strings, mut offsets, mut entry) = (0u64, Vec::new(), dynamic);
    // SAFETY: the section ends with DT_NULL; its strings are NUL-terminated.
    unsafe {
        while (*entry).tag != DT_NULL {
            match (*entry).tag {
                DT_STRTAB => strings = absolute(base, (*entry).value),
                DT_NEEDED => offsets.push((*entry).value),
                _ => {}
            }
            entry = entry.add(1);
        }
        if strings == 0 {
            return Vec::new();
        }
        offsets
            .into_iter()
            .map(|offset| CStr::from_ptr((strings + offset) as *const _).to_string_lossy().into_owned())
            .collect()
    }
}

/// glibc has relocated the addresses in a dynamic section, except in objects it does not write to.
fn absolute(base: u64, value: u64) -> u64 {
    if value < base {
        base + value
    } else {
        value
    }
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const DT_NULL: i64 = 0;
const DT_NEEDED: i64 = 1;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
#[cfg(target_arch = "x86_64")]
const SLOTS: [u32; 2] = [6, 7]; // R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT
#[cfg(target_arch = "aarch64")]
const SLOTS: [u32; 2] = [1025, 1026]; // R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SLOTS: [u32; 2] = [u32::MAX; 2];

/// The pages of an object that are read-only after relocation.
fn protected(base: u64, headers: &[libc::Elf64_Phdr]) -> (usize, usize) {
    // SAFETY: plain system call.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    relro.map_or((0, 0), |header| {
        let start = (base + header.p_vaddr) as usize;
        let end = start + header.p_memsz as usize;
        (start & !(page - 1), end & !(page - 1))
    })
}

impl Object {
    /// Runs `write` while the protected pages are writable. Says whether they were.
    ///
    /// # Safety
    /// The object stays loaded meanwhile.
    unsafe fn writable(&self, write: impl FnOnce()) -> bool {
        let (start, end) = self.protected;
        let protect = |rights| {
            // SAFETY: whole pages of the object, which its program header names.
            end <= start || unsafe { libc::mprotect(start as *mut c_void, end - start, rights) == 0 }
        };
        if !protect(libc::PROT_READ | libc::PROT_WRITE) {
            return false;
        }
        write();
        protect(libc::PROT_READ);
        true
    }

    /// Puts our functions into the object's global offset table. Says whether that was possible.
    ///
    /// # Safety
    /// The object is loaded, relocated, and stays loaded meanwhile.
    unsafe fn patch(&self, replacement: &Replacement) -> bool {
        // SAFETY: as the caller says.
        let changes: Vec<(usize, usize)> = unsafe { self.slots(replacement) }
            .into_iter()
            // SAFETY: a slot of the object's own table.
            .filter(|(slot, ours)| unsafe { std::ptr::read_volatile(*slot as *const usize) } != *ours)
            .collect();
        if changes.is_empty() {
            return true;
        }
        if REMEMBERS.load(Ordering::Relaxed) {
            lock(&CHANGED).extend(changes.iter().map(|(address, _)| Slot {
                address: *address,
                // SAFETY: as above.
                before: unsafe { std::ptr::read_volatile(*address as *const usize) },
                object: self.path.clone(),
            }));
        }
        // SAFETY: slots of function pointers in the object's own table, made writable; a pointer is written whole, so
        // that another thread calls the old function or the new one.
        unsafe {
            self.writable(|| {
                for (slot, ours) in changes {
                    std::ptr::write_volatile(slot as *mut usize, ours);
                }
            })
        }
    }

    /// The slots of functions that are to be replaced, and what is to be in them.
    ///
    /// # Safety
    /// As for `patch`.
    unsafe fn slots(&self, replacement: &Replacement) -> Vec<(usize, usize)> {
        let (mut strings, mut symbols, mut tables) = (0u64, 0u64, [(0u64, 0u64); 2]);
        let mut entry = self.dynamic;
        let at = |value: u64| absolute(self.base, value);
        // SAFETY: the section ends with DT_NULL.
        unsafe {
            while (*entry).tag != DT_NULL {
                let value = (*entry).value;
                match (*entry).tag {
                    DT_STRTAB => strings = at(value),
                    DT_SYMTAB => symbols = at(value),
                    DT_RELA => tables[0].0 = at(value),
                    DT_RELASZ => tables[0].1 = value,
                    DT_JMPREL => tables[1].0 = at(value),
                    DT_PLTRELSZ => tables[1].1 = value,
                    _ => {}
                }
                entry = entry.add(1);
            }
        }
        let mut found = Vec::new();
        if strings == 0 || symbols == 0 {
            return found;
        }
        for (table, size) in tables.into_iter().filter(|(table, _)| *table != 0) {
            // SAFETY: a relocation table of the object, as its dynamic section says.
            let relocations = unsafe {
                std::slice::from_raw_parts(table as *const Relocation, size as usize / size_of::<Relocation>())
            };
            for relocation in relocations.iter().filter(|relocation| SLOTS.contains(&(relocation.info as u32))) {
                // SAFETY: the symbol that the relocation names, and its name.
                let (symbol, name) = unsafe {
                    let symbol = &*(symbols as *const Symbol).add((relocation.info >> 32) as usize);
                    (symbol, CStr::from_ptr((strings + u64::from(symbol.name)) as *const _))
                };
                if symbol.section != 0 {
                    continue; // the object's own function of this name
                }
                if let Some(ours) = replacement(name.to_bytes()) {
                    found.push(((self.base + relocation.offset) as usize, ours));
                }
            }
        }
        found
    }
}
