//! The application's calls, turned to us where they leave it: in the global offset tables of the application and its
//! libraries. Open MPI, and every library that it needs itself, is left alone; its Fortran bindings are not among those,
//! they only pass the application's calls on. A library that is loaded after MPI_Init is not reached.

use std::collections::HashSet;
use std::ffi::{c_int, c_void, CStr};

/// Which function stands in for a name.
pub type Replacement = dyn Fn(&[u8]) -> Option<usize>;

/// Turns the application's calls to us.
pub fn replace(replacement: &Replacement) {
    let mut objects: Vec<Object> = Vec::new();
    // SAFETY: glibc calls `collect` for every loaded object, with its own descriptions and our vector.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut objects).cast()) };
    let host = host_objects(&objects);
    for object in &objects {
        if !host.contains(object.file()) {
            // SAFETY: the dynamic section of an object that stays loaded while its code calls us.
            unsafe { patch(object.base, object.dynamic, replacement) };
        }
    }
}

struct Object {
    path: String,
    base: u64,
    dynamic: *const Dynamic,
    needs: Vec<String>,
}

impl Object {
    fn file(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Open MPI's own objects, and all that they need, by file name.
fn host_objects(objects: &[Object]) -> HashSet<String> {
    let ours = ["libmpi.so", "libopen-", "libredmpi", "mca_", "libpmix", "ld-linux", "linux-vdso"];
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
            objects.push(Object { path, base, dynamic, needs });
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

/// Puts our functions into one object's global offset table.
///
/// # Safety
/// `dynamic` is the dynamic section of an object loaded at `base`.
unsafe fn patch(base: u64, dynamic: *const Dynamic, replacement: &Replacement) {
    let (mut strings, mut symbols, mut tables) = (0u64, 0u64, [(0u64, 0u64); 2]);
    let mut entry = dynamic;
    let at = |value: u64| absolute(base, value);
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
    if strings == 0 || symbols == 0 {
        return;
    }
    for (table, size) in tables {
        if table == 0 {
            continue;
        }
        // SAFETY: a relocation table of the object, as its dynamic section says.
        let relocations = unsafe {
            std::slice::from_raw_parts(table as *const Relocation, size as usize / size_of::<Relocation>())
        };
        for relocation in relocations {
            if !SLOTS.contains(&(relocation.info as u32)) {
                continue;
            }
            // SAFETY: the symbol that the relocation names, and its name.
            let name = unsafe {
                let symbol = &*(symbols as *const Symbol).add((relocation.info >> 32) as usize);
                CStr::from_ptr((strings + u64::from(symbol.name)) as *const _)
            };
            let Some(ours) = replacement(name.to_bytes()) else { continue };
            // SAFETY: the slot of a function pointer in the object's own table.
            unsafe { write((base + relocation.offset) as *mut usize, ours) };
        }
    }
}

/// Writes a slot, which may be on a page that was made read-only after relocation.
///
/// # Safety
/// `slot` is a slot of a global offset table.
unsafe fn write(slot: *mut usize, value: usize) {
    // SAFETY: the page of the slot; it is made readable again and, as far as one can tell, writable only if it was.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
        let start = (slot as usize & !(page - 1)) as *mut c_void;
        let writable = is_writable(slot as usize);
        if !writable && libc::mprotect(start, page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            super::output::say(
                "warning: a call of the application cannot be followed (mprotect failed); replicas may differ",
            );
            return;
        }
        std::ptr::write_volatile(slot, value);
        if !writable {
            libc::mprotect(start, page, libc::PROT_READ);
        }
    }
}

fn is_writable(address: usize) -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    maps.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else { return false };
        let Some((from, to)) = range.split_once('-') else { return false };
        let inside = usize::from_str_radix(from, 16).is_ok_and(|from| from <= address)
            && usize::from_str_radix(to, 16).is_ok_and(|to| address < to);
        inside && rights.as_bytes().get(1) == Some(&b'w')
    })
}
