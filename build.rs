//! One build script for the whole workspace, so that there is one place that knows Open MPI.
//!
//! * In `ompi-headers` it finds the installed Open MPI (`OMPI_DIR`, or `mpicc` on the path), runs bindgen on
//!   `wrapper.h`, compiles the C shim, and passes on what it learned (series, folders) as cargo metadata.
//! * In `redmpi` it turns that metadata into `cfg`s and link arguments of `libredmpi.so`.
//! * In `components/*` it links the component against a stub of `libredmpi.so` (same soname, no code: cargo
//!   gives no order between two `cdylib`s), and puts a link of the name that Open MPI looks for,
//!   `mca_<framework>_redmpi.so`, into a folder of their own, `target/<profile>/components`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

fn main() {
    println!("cargo:rerun-if-env-changed=OMPI_DIR");
    println!("cargo:rustc-check-cfg=cfg(ompi4)");
    println!("cargo:rustc-check-cfg=cfg(ompi5)");
    match env::var("CARGO_PKG_NAME").as_deref() {
        Ok("ompi-headers") => declarations(),
        Ok("redmpi") => library(),
        Ok(name) => component(name),
        Err(error) => fail(&format!("cargo did not say which package this is: {error}")),
    }
}

/// One clear text instead of a panic's backtrace.
fn fail(text: &str) -> ! {
    eprintln!("\nredmpi cannot be built: {text}\n");
    exit(1)
}

const INSTALL: &str = "On Debian or Ubuntu: apt-get install libopenmpi-dev openmpi-bin\n\
     Elsewhere: an Open MPI configured with --with-devel-headers; set OMPI_DIR to its prefix.";

struct OpenMpi {
    include: Vec<PathBuf>,
    libraries: Vec<PathBuf>,
    version: (u32, u32, u32),
}

/// Asks the compiler wrapper of the Open MPI that is wanted; nothing is guessed from folder names.
fn find_open_mpi() -> OpenMpi {
    let mpicc = match env::var_os("OMPI_DIR") {
        Some(prefix) => PathBuf::from(prefix).join("bin/mpicc"),
        None => PathBuf::from("mpicc"),
    };
    let ask = |what: &str| -> Vec<PathBuf> {
        match Command::new(&mpicc).arg(what).output() {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).split_whitespace().map(PathBuf::from).collect()
            }
            Ok(output) => fail(&format!(
                "`{} {what}` failed, so it is not Open MPI's compiler wrapper: {}\n{INSTALL}",
                mpicc.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => {
                fail(&format!("Open MPI's compiler wrapper {} was not found ({error}).\n{INSTALL}", mpicc.display()))
            }
        }
    };
    let mut include = ask("--showme:incdirs");
    let libraries = ask("--showme:libdirs");
    for folder in include.clone() {
        let nested = folder.join("openmpi");
        if nested.is_dir() && !include.contains(&nested) {
            include.push(nested);
        }
    }
    let Some(header) = include.iter().map(|folder| folder.join("mpi.h")).find(|file| file.is_file()) else {
        fail(&format!("mpi.h is in none of {include:?}.\n{INSTALL}"));
    };
    if !include.iter().any(|folder| folder.join("ompi/mca/pml/pml.h").is_file()) {
        fail(&format!(
            "Open MPI's internal (devel) headers are missing: no ompi/mca/pml/pml.h in {include:?}.\n{INSTALL}"
        ));
    }
    let text = fs::read_to_string(&header).unwrap_or_else(|error| fail(&format!("{}: {error}", header.display())));
    let number = |name: &str| -> u32 {
        text.lines()
            .filter_map(|line| line.strip_prefix("#define ")?.trim().strip_prefix(name))
            .find_map(|rest| rest.trim().parse().ok())
            .unwrap_or_else(|| fail(&format!("{} does not define {name}: not Open MPI?", header.display())))
    };
    let version = (number("OMPI_MAJOR_VERSION"), number("OMPI_MINOR_VERSION"), number("OMPI_RELEASE_VERSION"));
    if !matches!(version.0, 4 | 5) {
        fail(&format!(
            "Open MPI {}.{}.{} was found; redmpi knows the series 4.1 and 5.0.",
            version.0, version.1, version.2
        ));
    }
    OpenMpi { include, libraries, version }
}

fn declarations() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let host = find_open_mpi();
    for file in ["wrapper.h", "shim.h", "shim.c"] {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }

    let mut builder = bindgen::Builder::default()
        .header(root.join("wrapper.h").to_string_lossy())
        .allowlist_file(".*/shim\\.h")
        .allowlist_function(
            "opal_progress|opal_output|opal_progress_register|opal_progress_register_lp|opal_progress_unregister",
        )
        .allowlist_function("mca_base_(component_find|var_register|var_register_synonym|var_enum_create)")
        .allowlist_function("ompi_mpi_abort|ompi_attr_create_keyval|ompi_attr_set_aint")
        .allowlist_var(
            "ompi_(coll|pml)_base_framework|ompi_request_functions|mca_pml|mca_pml_base_selected_component",
        )
        .allowlist_var("ompi_mpi_(comm_world|comm_self|byte|thread_multiple|state)")
        .allowlist_type(
            "mca_(pml|coll)_base_.*|mca_base_.*|ompi_(request|communicator|group|datatype|status|message|win|osc).*",
        )
        .allowlist_var("(OMPI|OPAL|MCA|MPI)_[A-Z0-9_]*")
        .blocklist_function("redmpi_pml_.*|redmpi_coll_.*")
        .prepend_enum_name(false)
        .layout_tests(true)
        .derive_default(false)
        .generate_comments(false)
        .rust_target(bindgen::RustTarget::stable(85, 0).unwrap_or_default())
        .formatter(bindgen::Formatter::None);
    for folder in &host.include {
        builder = builder.clang_arg(format!("-I{}", folder.display()));
    }
    match builder.generate() {
        Ok(bindings) => bindings
            .write_to_file(out.join("bindings.rs"))
            .unwrap_or_else(|error| fail(&format!("bindings.rs: {error}"))),
        Err(error) => fail(&format!(
            "bindgen could not read Open MPI's headers: {error}\n\
             It needs libclang (Debian: apt-get install libclang-dev)."
        )),
    }

    let mut shim = cc::Build::new();
    shim.file(root.join("shim.c")).includes(&host.include).warnings(true).pic(true);
    // Open MPI's own headers are not ours to mend.
    shim.flag("-Wno-unused-parameter").flag("-Wno-sign-compare");
    shim.compile("redmpi_shim");

    for folder in &host.libraries {
        println!("cargo:rustc-link-search=native={}", folder.display());
    }
    println!("cargo:rustc-link-lib=dylib=mpi");
    println!("cargo:rustc-link-lib=dylib=open-pal");
    println!("cargo:rustc-cfg=ompi{}", host.version.0);
    println!("cargo:series={}", host.version.0);
    println!("cargo:version={}.{}.{}", host.version.0, host.version.1, host.version.2);
    println!("cargo:libraries={}", join(&host.libraries));
    println!("cargo:include={}", join(&host.include));
}

fn join(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
}

fn series() {
    let series = env::var("DEP_MPI_SERIES").unwrap_or_else(|_| fail("ompi-headers did not say the series"));
    println!("cargo:rustc-cfg=ompi{series}");
    println!("cargo:rustc-env=REDMPI_OPEN_MPI={}", env::var("DEP_MPI_VERSION").unwrap_or_default());
}

fn library() {
    series();
    println!("cargo:rerun-if-changed=build.rs");
    // A component is asked to unload when it is not selected; Rust code must not be (docs/SAFETY.md).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libredmpi.so");
}

fn component(name: &str) {
    series();
    println!("cargo:rerun-if-changed=../../build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());

    let source = out.join("stub.c");
    let _ = fs::write(&source, "/* Stands for libredmpi.so while a component is linked. */\n");
    let compiler = cc::Build::new().get_compiler();
    let status = Command::new(compiler.path())
        .args(["-shared", "-nostdlib", "-Wl,-soname,libredmpi.so", "-o"])
        .arg(out.join("libredmpi.so"))
        .arg(&source)
        .status();
    if !matches!(status, Ok(status) if status.success()) {
        fail(&format!("{} could not make the link stub: {status:?}", compiler.path().display()));
    }
    println!("cargo:rustc-cdylib-link-arg=-L{}", out.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-l:libredmpi.so,--pop-state");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN/..:$ORIGIN");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}.so");

    // OUT_DIR is target/<profile>/build/<package>-<hash>/out.
    let Some(profile) = out.ancestors().nth(3) else { return };
    let folder = profile.join("components");
    let _ = fs::create_dir_all(&folder);
    link(&Path::new("..").join(format!("lib{name}.so")), &folder.join(format!("{name}.so")));
}

fn link(target: &Path, at: &Path) {
    let _ = fs::remove_file(at);
    if let Err(error) = std::os::unix::fs::symlink(target, at) {
        fail(&format!("{} cannot be made: {error}", at.display()));
    }
}
