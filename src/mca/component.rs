//! What the two components call: registration, and the decision whether redmpi was asked for.
//!
//! `--mca coll redmpi` and `--mca pml redmpi` both mean "as Open MPI would run without us, and redmpi in front":
//! so the name is taken out of the framework's selection while our component is registered, and the framework loads
//! what it would have loaded otherwise. The PML is then chosen by Open MPI itself; coll's init_query, which comes after
//! that choice and before the PML's first use, steps in front of it. Not asked for, both components ask to be closed.

use super::guard::guard;
use super::host::{self, Communicator, SUCCESS};
use super::{collective, output, pml, runtime, vars};
use ompi_headers as mpi;
use std::ffi::{c_int, CStr};
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

const NOT_AVAILABLE: c_int = mpi::OPAL_ERR_NOT_AVAILABLE as c_int;
const OPAL_ERROR: c_int = -1;

/// The names in a selection like `a,b`; `None` for no selection and for an exclusion like `^a`.
fn included(selection: Option<&str>) -> Option<Vec<&str>> {
    let selection = selection?.trim();
    if selection.is_empty() || selection.starts_with('^') {
        return None;
    }
    Some(selection.split(',').map(str::trim).filter(|name| !name.is_empty()).collect())
}

fn excludes_us(selection: Option<&str>) -> bool {
    selection
        .and_then(|text| text.trim().strip_prefix('^'))
        .is_some_and(|names| names.split(',').any(|name| name.trim() == "redmpi"))
}

fn selection(framework: *mut mpi::mca_base_framework_t) -> Option<String> {
    // SAFETY: a framework of Open MPI, being registered by this thread; its selection is a C string or null.
    unsafe {
        let text = (*framework).framework_selection;
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// Takes `redmpi` out of an inclusive selection. Says whether it was in.
fn take_out(framework: *mut mpi::mca_base_framework_t, keep_ours: bool) -> Result<bool, c_int> {
    let given = selection(framework);
    let Some(names) = included(given.as_deref()) else { return Ok(false) };
    if !names.contains(&"redmpi") {
        return Ok(false);
    }
    let others: Vec<&str> = names.into_iter().filter(|name| *name != "redmpi").collect();
    if keep_ours {
        if let Err(text) = without_unlike(given.as_deref(), &vars::left_out()) {
            output::refuse(&text);
        }
        if !others.is_empty() {
            return Ok(true); // the user has named the others; Open MPI has found them
        }
    }
    let rest = if others.is_empty() && keep_ours { exclusion(&[], &vars::left_out()) } else { others.join(",") };
    let none = rest.is_empty();
    let rest = vars::c_string(&rest);
    // SAFETY: the selection is the storage of a string variable, which Open MPI frees: so it gets a malloc'ed string
    // or null. The old string stays allocated, as somebody may hold it (a few bytes, once).
    unsafe {
        (*framework).framework_selection = if none { std::ptr::null_mut() } else { libc::strdup(rest.as_ptr()) };
    }
    // SAFETY: called while this framework registers its components, which is when Open MPI itself would do this.
    match unsafe { mpi::redmpi_shim_framework_load(framework) } {
        SUCCESS => Ok(true),
        error => Err(error),
    }
}

fn register_in(framework: *mut mpi::mca_base_framework_t, keep_ours: bool) -> c_int {
    // Before Open MPI replaces a value it does not understand; ompi_info, which is no job, shall list all the same.
    let names_us = |selection: Option<&str>| included(selection).is_some_and(|names| names.contains(&"redmpi"));
    let asked = names_us(selection(framework).as_deref())
        || ["OMPI_MCA_coll", "OMPI_MCA_pml"].iter().any(|name| names_us(std::env::var(name).ok().as_deref()));
    if asked && std::env::var_os("OMPI_COMM_WORLD_RANK").is_some() {
        if let Err(text) = vars::check_given() {
            output::refuse(&text);
        }
    }
    let registered = vars::register();
    if registered != SUCCESS {
        return registered;
    }
    match take_out(framework, keep_ours) {
        Ok(asked) => {
            if asked {
                ASKED.store(true, Ordering::Relaxed);
            }
            SUCCESS
        }
        Err(error) => error,
    }
}

/// Registration of pml/redmpi.
#[no_mangle]
pub extern "C" fn redmpi_pml_register() -> c_int {
    guard("pml register", OPAL_ERROR, || {
        let result = register_in(&raw mut mpi::ompi_pml_base_framework, false);
        if ASKED.load(Ordering::Relaxed) {
            // coll/redmpi does the work: where the user's list of coll components lacks it, it is added.
            let name = "OMPI_MCA_coll";
            let coll = std::env::var(name).ok();
            if excludes_us(coll.as_deref()) {
                output::refuse(&format!(
                    "--mca pml redmpi asks for redmpi, and --mca coll {} excludes it: the two work together",
                    coll.unwrap_or_default()
                ));
            }
            match without_unlike(coll.as_deref(), &vars::left_out()) {
                Err(text) => output::refuse(&text),
                Ok(Some(selection)) => std::env::set_var(name, selection),
                Ok(None) if included(coll.as_deref()).is_some_and(|names| !names.contains(&"redmpi")) => {
                    std::env::set_var(name, format!("{},redmpi", coll.unwrap_or_default()));
                }
                Ok(None) => {}
            }
        }
        result
    })
}

/// Opening of pml/redmpi: it is never selected itself.
#[no_mangle]
pub extern "C" fn redmpi_pml_open() -> c_int {
    NOT_AVAILABLE
}

/// Never reached, as the component asks to be closed.
#[no_mangle]
pub extern "C" fn redmpi_pml_init(_: *mut c_int, _: bool, _: bool) -> *mut mpi::mca_pml_base_module_t {
    std::ptr::null_mut()
}

/// Registration of coll/redmpi.
#[no_mangle]
pub extern "C" fn redmpi_coll_register() -> c_int {
    guard("coll register", OPAL_ERROR, || {
        let result = register_in(&raw mut mpi::ompi_coll_base_framework, true);
        if ASKED.load(Ordering::Relaxed) && vars::replicates() {
            // Open MPI opens the osc framework after this one.
            match without_unfit(std::env::var("OMPI_MCA_osc").ok().as_deref()) {
                Ok(selection) => std::env::set_var("OMPI_MCA_osc", selection),
                Err(text) => output::refuse(&text),
            }
        }
        result
    })
}

/// A selection of everything but these.
fn exclusion(given: &[&str], left_out: &[String]) -> String {
    let mut names: Vec<&str> = given.to_vec();
    names.extend(left_out.iter().map(String::as_str).filter(|name| !given.contains(name)));
    if names.is_empty() {
        String::new()
    } else {
        format!("^{}", names.join(","))
    }
}

/// The user's selection of collective components less those that are left out; `None` where it may stay as it is.
///
/// # Errors
/// The user names one of them.
fn without_unlike(selection: Option<&str>, left_out: &[String]) -> Result<Option<String>, String> {
    if left_out.is_empty() {
        return Ok(None);
    }
    let Some(names) = included(selection) else {
        let given = selection.unwrap_or_default().trim().trim_start_matches('^');
        let given: Vec<&str> = given.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        return Ok(Some(exclusion(&given, left_out)));
    };
    match names.iter().find(|name| left_out.iter().any(|out| out == *name)) {
        Some(name) => Err(format!(
            "--mca coll {} asks for {name}, which coll_redmpi_exclude (or, with coll_redmpi_verify=p2p, coll_redmpi_bypass) \
             leaves out: replicas might compute different results with it, or its messages could not be verified.\n  \
             Leave {name} out of --mca coll, or out of that variable. Left out now: {}",
            selection.unwrap_or_default(),
            left_out.join(",")
        )),
        None => Ok(None),
    }
}

/// One-sided components that do not work where MPI_COMM_WORLD is not all that mpirun started: ucx walks MPI_COMM_WORLD
/// up to the number of native ranks when it finalizes.
const UNFIT: [&str; 1] = ["ucx"];

/// The user's selection of one-sided components less those.
fn without_unfit(selection: Option<&str>) -> Result<String, String> {
    match included(selection) {
        Some(names) => {
            let fit: Vec<&str> = names.into_iter().filter(|name| !UNFIT.contains(name)).collect();
            if fit.is_empty() {
                return Err(format!(
                    "--mca osc {} leaves no component for one-sided communication that works with replication: {} does not",
                    selection.unwrap_or_default(),
                    UNFIT.join(", ")
                ));
            }
            Ok(fit.join(","))
        }
        None => {
            let given = selection.unwrap_or_default().trim().trim_start_matches('^');
            let others = given.split(',').map(str::trim).filter(|name| !name.is_empty() && !UNFIT.contains(name));
            Ok(format!("^{}", others.chain(UNFIT).collect::<Vec<_>>().join(",")))
        }
    }
}

/// Opening of coll/redmpi: stays only if asked for.
#[no_mangle]
pub extern "C" fn redmpi_coll_open() -> c_int {
    if ASKED.load(Ordering::Relaxed) {
        SUCCESS
    } else {
        NOT_AVAILABLE
    }
}

/// The library that is loaded has to be the one whose structures we know.
fn check_host() {
    let (built, loaded) = (host::built_version(), host::version());
    let series = built.rsplit_once('.').map_or(built.as_str(), |(series, _)| series).to_owned();
    let fits = loaded.contains(&format!("Open MPI v{series}.")) || loaded.contains(&format!("Open MPI {series}."));
    if !fits {
        output::refuse(&format!(
            "this redmpi was built for Open MPI {built} and is loaded into '{loaded}'.\n  \
             Build it with that Open MPI's mpicc in front on the PATH (or OMPI_DIR set)."
        ));
    }
    // SAFETY: the shim reads the first eight bytes of a predefined object.
    let (debug, built_debug) = unsafe { (mpi::redmpi_shim_host_is_debug(), mpi::redmpi_shim_built_debug()) };
    if (debug != 0) != (built_debug != 0) {
        output::refuse(
            "this redmpi and the Open MPI it is loaded into differ in --enable-debug, which changes the layout of every \
             object. Build redmpi with that Open MPI's own headers.",
        );
    }
}

/// The moment to step in front of the host PML.
#[no_mangle]
pub extern "C" fn redmpi_coll_init_query(_: bool, threads: bool) -> c_int {
    guard("coll init_query", OPAL_ERROR, || {
        if !ASKED.load(Ordering::Relaxed) {
            return NOT_AVAILABLE;
        }
        check_host();
        // SAFETY: MPI_Init knows its own process and the job's size by now.
        let (native, size) = unsafe { (mpi::redmpi_shim_native_rank(), mpi::redmpi_shim_native_size()) };
        match runtime::start(native, size, threads) {
            Ok(true) => pml::interpose(),
            Ok(false) => {}
            Err(text) => output::refuse(&text),
        }
        SUCCESS
    })
}

/// redmpi's collective module of a communicator, in front of the host's.
#[no_mangle]
pub extern "C" fn redmpi_coll_comm_query(
    comm: *mut Communicator,
    priority: *mut c_int,
) -> *mut mpi::mca_coll_base_module_t {
    guard("coll comm_query", std::ptr::null_mut(), || {
        if runtime::active() {
            collective::query(comm, priority)
        } else {
            std::ptr::null_mut()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_read_as_open_mpi_reads_it() {
        assert_eq!(included(Some("redmpi")), Some(vec!["redmpi"]));
        assert_eq!(included(Some("redmpi, tuned,,basic")), Some(vec!["redmpi", "tuned", "basic"]));
        assert_eq!(included(Some("^redmpi")), None);
        assert_eq!(included(Some("")), None);
        assert_eq!(included(None), None);
        assert!(excludes_us(Some("^sm,redmpi")));
        assert!(!excludes_us(Some("redmpi")));
    }

    #[test]
    fn components_that_may_differ_are_left_out() {
        let out = ["han".to_owned(), "sm".to_owned()];
        assert_eq!(without_unlike(None, &out), Ok(Some("^han,sm".to_owned())));
        assert_eq!(without_unlike(Some("^sync, sm"), &out), Ok(Some("^sync,sm,han".to_owned())));
        assert_eq!(without_unlike(Some("redmpi,tuned"), &out), Ok(None));
        assert_eq!(without_unlike(None, &[]), Ok(None));
        let error = without_unlike(Some("redmpi,han"), &out).unwrap_err();
        assert!(error.contains("asks for han,") && error.contains("coll_redmpi_exclude"), "{error}");
        assert_eq!(exclusion(&[], &[]), "");
    }

    #[test]
    fn unfit_one_sided_components_are_left_out() {
        assert_eq!(without_unfit(None).unwrap(), "^ucx");
        assert_eq!(without_unfit(Some("^sm,ucx")).unwrap(), "^sm,ucx");
        assert_eq!(without_unfit(Some("sm,ucx,pt2pt")).unwrap(), "sm,pt2pt");
        assert!(without_unfit(Some("ucx")).unwrap_err().contains("ucx"));
    }
}
