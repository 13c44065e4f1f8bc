//! Standard output and error of this process, from MPI_Init on: read by a helper process that compares them with those of the
//! other replicas (docs/stdio.md).
//!
//! The helper is started here, the two descriptors are replaced, and at three places the process marks its streams and waits
//! for the helper to have everything before the mark out: in MPI_Finalize, where the helper also tells what it found; before
//! MPI_Abort; and at exit.

use super::descriptors::{self, Poll};
use super::guard::guard;
use super::runtime::{self, lock};
use super::vars::Stdio;
use super::{finalize, host, output, request, share};
use crate::report::{Event, EventKind, OutputCounts};
use crate::stdio::marker::{self, Kind};
use crate::stdio::{Answer, Descriptors, Findings, Greeting, Role, Setup};
use ompi_headers as mpi;
use serde::{Deserialize, Serialize};
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddress, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{mpsc, Mutex};
use std::time::{Duration, Instant};

/// Kinds of what replicas share here.
const INVITATION: u8 = 64;
const WHERE: u8 = 65;
const WHETHER: u8 = 66;

/// How long a helper may take to begin, and a connection to be made, on a machine that is very busy.
const BEGIN: Duration = Duration::from_secs(30);

/// Where a stream of the application goes, held so that it can be marked.
struct Stream {
    writer: OwnedFd,
    identity: Option<(u64, u64, u64)>,
}

/// The helper of this process.
struct Helper {
    control: UnixStream,
    streams: Vec<Stream>,
    secret: [u8; 16],
    role: Role,
    next: u64,
    /// What of an answer has come.
    said: Vec<u8>,
    /// It has ended.
    gone: bool,
    /// A forked child has these descriptors and is not the one that is helped.
    pid: u32,
}

static HELPER: Mutex<Option<Helper>> = Mutex::new(None);
static FINDINGS: Mutex<Option<Findings>> = Mutex::new(None);
/// Why output is not compared although it should be.
static UNABLE: Mutex<Option<String>> = Mutex::new(None);

/// What the leader tells the others: how to come to its helper.
#[derive(Serialize, Deserialize)]
struct Invitation {
    password: [u8; 32],
    /// Name of the socket for those on its host.
    local: Vec<u8>,
    /// Addresses for others.
    addresses: Vec<SocketAddr>,
    merged: bool,
    present: [bool; 2],
}

/// At MPI_Init, when replicas can share: arranges for the application's output from here on.
pub fn start() {
    let runtime = runtime::get();
    // What redmpi says goes there, whatever becomes of the application's.
    if let Ok(error) = descriptors::duplicate(2) {
        output::elsewhere(descriptors::keep(error));
    }
    match runtime.config.stdio {
        Stdio::All => {}
        Stdio::Leader => only_the_leader(),
        Stdio::Tag => {
            if let Err(why) = Prepared::new(merged(), present()).and_then(|prepared| prepared.begin(Role::Tag, None))
            {
                unable(&format!("lines are shown without their process's place: {why}"));
            }
        }
        Stdio::Vote => vote(),
    }
}

/// Shows the leader's output alone.
fn only_the_leader() {
    if runtime::get().leads() {
        return;
    }
    let silenced = File::options().write(true).open("/dev/null").and_then(|nowhere| {
        [1, 2]
            .into_iter()
            .filter(|number| descriptors::identity(*number).is_some())
            .try_for_each(|number| descriptors::replace(number, nowhere.as_fd()))
    });
    if let Err(error) = silenced {
        output::say(&format!("warning: /dev/null cannot be opened ({error}); every replica's output will be shown"));
    }
}

fn unable(why: &str) {
    *lock(&UNABLE) = Some(why.to_owned());
    // One voice for a node; the verdict says it again.
    let first = std::env::var("OMPI_COMM_WORLD_LOCAL_RANK").map_or(true, |rank| rank == "0");
    if first || (runtime::get().virtual_rank == 0 && runtime::get().leads()) {
        output::say(&format!("warning: {why}"));
    }
}

fn vote() {
    let runtime = runtime::get();
    let here = place().into_bytes();
    let apart =
        share::exchange(WHERE, "where its output comes from", here.clone()).iter().any(|(_, place)| *place != here);
    let mut begun = Err(String::new());
    let invitation = share::leader(INVITATION, "where its output is compared", || {
        begun = lead(apart).map(|(helper, invitation)| {
            let bytes = serde_json::to_vec(&invitation).unwrap_or_default();
            (helper, bytes)
        });
        begun.as_ref().map(|(_, bytes)| bytes.clone()).unwrap_or_default()
    });
    let mine = if runtime.leads() { begun.map(|(helper, _)| helper) } else { follow(&invitation) };
    let problem = mine.as_ref().err().cloned().unwrap_or_default().into_bytes();
    let problems: Vec<String> = share::exchange(WHETHER, "whether its output can be compared", problem)
        .into_iter()
        .filter(|(_, problem)| !problem.is_empty())
        .map(|(replica, problem)| format!("replica {replica}: {}", String::from_utf8_lossy(&problem)))
        .collect();
    match mine {
        Ok(begun) if problems.is_empty() => begun.install(),
        mine => {
            if let Ok(mut begun) = mine {
                let _ = begun.helper.control.write_all(b"nothing comes of it\n");
            }
            if runtime.leads() {
                unable(&format!("output is not compared, the leader's is shown ({})", problems.join("; ")));
            }
            only_the_leader();
        }
    }
}

/// Where this process is, as far as local sockets reach.
fn place() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {} {}", host::hostname(), read("/proc/sys/kernel/random/boot_id").trim(), network.display())
}

fn merged() -> bool {
    descriptors::identity(1).is_some() && descriptors::identity(1) == descriptors::identity(2)
}

fn present() -> [bool; 2] {
    [1, 2].map(|number| descriptors::identity(number).is_some())
}

/// Where the `redmpi` command is: beside the library in a checkout, or in the installation's `bin`.
fn command() -> Result<PathBuf, String> {
    let library = descriptors::file_of(start as *const ()).ok_or("libredmpi.so does not know where it is")?;
    let library = library.canonicalize().map_err(|error| format!("{}: {error}", library.display()))?;
    let folder = library.parent().unwrap_or(&library);
    let places = ["redmpi", "../../bin/redmpi", "../bin/redmpi"].map(|place| folder.join(place));
    places
        .iter()
        .find(|place| place.is_file())
        .cloned()
        .ok_or_else(|| format!("the redmpi command is neither {} nor {}", places[0].display(), places[1].display()))
}

/// New places for the application's output, and what the helper needs.
struct Prepared {
    readers: Vec<Option<OwnedFd>>,
    writers: Vec<Option<OwnedFd>>,
    merged: bool,
}

/// A helper that has begun; the application's output does not go there yet.
struct Begun {
    helper: Helper,
    writers: Vec<Option<OwnedFd>>,
    merged: bool,
}

impl Prepared {
    fn new(merged: bool, present: [bool; 2]) -> Result<Prepared, String> {
        let mut prepared = Prepared { readers: Vec::new(), writers: Vec::new(), merged };
        for (index, number) in [1, 2].into_iter().enumerate() {
            let (reader, writer) = if !present[index] || (index == 1 && merged) {
                (None, None)
            } else {
                let pair = match descriptors::is_terminal(number) {
                    true => descriptors::terminal(number).or_else(|_| pipe()),
                    false => pipe(),
                };
                let (reader, writer) = pair.map_err(|error| format!("no pipe can be made: {error}"))?;
                (Some(reader), Some(writer))
            };
            prepared.readers.push(reader);
            prepared.writers.push(writer);
        }
        Ok(prepared)
    }

    fn begin(self, role: Role, more: Option<Connections>) -> Result<(), String> {
        self.start(role, more.unwrap_or_default()).map(Begun::install)
    }

    /// Starts the helper.
    fn start(self, role: Role, connections: Connections) -> Result<Begun, String> {
        let runtime = runtime::get();
        let program = command()?;
        let io = |error: io::Error| error.to_string();
        let nowhere = File::options().read(true).write(true).open("/dev/null").map_err(io)?;
        let (control, theirs) = UnixStream::pair().map_err(io)?;
        let original = |number: RawFd| {
            descriptors::duplicate(number).or_else(|_| OwnedFd::try_clone(&nowhere.as_fd().try_clone_to_owned()?))
        };
        let error = original(2).map_err(io)?;
        // What a follower writes is shown by the leader's helper, if at all.
        let out = if role == Role::Follow {
            OwnedFd::from(nowhere.try_clone().map_err(io)?)
        } else {
            original(1).map_err(io)?
        };

        let mut list: Vec<BorrowedFd<'_>> = vec![nowhere.as_fd(), out.as_fd(), error.as_fd(), theirs.as_fd()];
        let mut numbers = Descriptors::default();
        let mut push = |descriptor| {
            list.push(descriptor);
            Some(list.len() as i32 - 1)
        };
        for (number, reader) in numbers.streams.iter_mut().zip(&self.readers) {
            *number = reader.as_ref().and_then(|reader| push(reader.as_fd()));
        }
        numbers.local_listener = connections.local.as_ref().and_then(|listener| push(listener.as_fd()));
        numbers.listener = connections.listener.as_ref().and_then(|listener| push(listener.as_fd()));
        numbers.leader = connections.leader.as_ref().and_then(|leader| push(leader.as_fd()));

        let mut secret: [u8; 16] = descriptors::random().map_err(io)?;
        // Rare in texts: what begins like a marker is held back until it is known not to be one.
        secret[0] = 0xfe;
        let setup = Setup {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            native: runtime.native,
            rank: runtime.virtual_rank,
            replica: runtime.ring.me(),
            host: host::hostname(),
            degree: runtime.config.degree as u8,
            role,
            delay_ms: runtime.config.stdio_delay.as_millis() as u64,
            secret,
            password: connections.password,
            merged: self.merged,
            descriptors: numbers,
        };
        let mut line = serde_json::to_vec(&setup).map_err(|error| error.to_string())?;
        line.push(b'\n');
        (&control).write_all(&line).map_err(io)?;
        descriptors::start(&program, &[c"stdio"], &list)
            .map_err(|error| format!("{}: {error}", program.display()))?;
        drop(theirs);
        let mut helper = Helper {
            control,
            streams: Vec::new(),
            secret,
            role,
            next: 0,
            said: Vec::new(),
            gone: false,
            pid: std::process::id(),
        };
        match helper.hear(Instant::now() + BEGIN, || ()) {
            Some(Answer::Ready) => {}
            Some(Answer::Unable(why)) => return Err(why),
            _ if helper.gone => return Err(format!("the helper {} has ended", program.display())),
            _ => return Err(format!("the helper {} has not answered for {BEGIN:?}", program.display())),
        }
        Ok(Begun { helper, writers: self.writers, merged: self.merged })
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    io::pipe().map(|(reader, writer)| (reader.into(), writer.into()))
}

impl Begun {
    /// Turns the application's output to the helper.
    fn install(mut self) {
        for (index, writer) in self.writers.into_iter().enumerate() {
            let Some(writer) = writer else { continue };
            let numbers = if self.merged { vec![1, 2] } else { vec![index as RawFd + 1] };
            // Out of the way of the numbers that programs take for granted.
            let Ok(writer) = descriptors::duplicate(writer.as_raw_fd()) else { continue };
            for number in numbers {
                let _ = descriptors::replace(number, writer.as_fd());
            }
            let identity = descriptors::identity(writer.as_raw_fd());
            self.helper.streams.push(Stream { writer, identity });
        }
        catch_crashes(&self.helper);
        *lock(&HELPER) = Some(self.helper);
    }
}

/// How helpers of different replicas come together.
#[derive(Default)]
struct Connections {
    password: [u8; 32],
    local: Option<UnixListener>,
    listener: Option<TcpListener>,
    leader: Option<OwnedFd>,
}

fn lead(apart: bool) -> Result<(Begun, Invitation), String> {
    let io = |error: io::Error| format!("no socket can be made: {error}");
    let password: [u8; 32] = descriptors::random().map_err(io)?;
    let name: [u8; 12] = descriptors::random().map_err(io)?;
    let local: Vec<u8> = [b"redmpi-", &name.map(|byte| b'a' + byte % 26)[..]].concat();
    let address = LocalAddress::from_abstract_name(&local).map_err(io)?;
    let local_listener = UnixListener::bind_addr(&address).map_err(io)?;
    let (mut listener, mut addresses) = (None, Vec::new());
    if apart {
        let bound = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).map_err(io)?;
        let port = bound.local_addr().map_err(io)?.port();
        addresses = descriptors::addresses().into_iter().map(|address| SocketAddr::new(address, port)).collect();
        listener = Some(bound);
    }
    let (merged, present) = (merged(), present());
    let connections = Connections { password, local: Some(local_listener), listener, leader: None };
    let begun = Prepared::new(merged, present)?.start(Role::Vote, connections)?;
    Ok((begun, Invitation { password, local, addresses, merged, present }))
}

fn follow(invitation: &[u8]) -> Result<Begun, String> {
    let Ok(invitation) = serde_json::from_slice::<Invitation>(invitation) else {
        return Err(String::from("it was not invited"));
    };
    if (merged(), present()) != (invitation.merged, invitation.present) {
        return Err(String::from("its standard output and error are not open in the same way as the leader's"));
    }
    let leader = come_in(&invitation)?;
    let connections = Connections { password: invitation.password, leader: Some(leader), ..Connections::default() };
    Prepared::new(invitation.merged, invitation.present)?.start(Role::Follow, connections)
}

/// Connects to the leader's helper: on its host by a local socket, else by whichever address answers first.
fn come_in(invitation: &Invitation) -> Result<OwnedFd, String> {
    let address = LocalAddress::from_abstract_name(&invitation.local).map_err(|error| error.to_string())?;
    if let Ok(socket) = UnixStream::connect_addr(&address) {
        let _ = socket.set_read_timeout(Some(BEGIN));
        greet(&socket, &invitation.password)?;
        let _ = socket.set_read_timeout(None);
        return Ok(socket.into());
    }
    let (tell, hear) = mpsc::channel();
    for address in invitation.addresses.clone() {
        let (tell, password) = (tell.clone(), invitation.password);
        std::thread::spawn(move || {
            let connected = TcpStream::connect_timeout(&address, BEGIN / 2).map_err(|error| error.to_string());
            let greeted = connected.and_then(|socket| {
                let _ = socket.set_read_timeout(Some(BEGIN / 2));
                greet(&socket, &password)?;
                let _ = socket.set_read_timeout(None);
                Ok(OwnedFd::from(socket))
            });
            let _ = tell.send(greeted.map_err(|error| format!("{address}: {error}")));
        });
    }
    drop(tell);
    let mut problems = Vec::new();
    for outcome in hear {
        match outcome {
            Ok(socket) => return Ok(socket),
            Err(problem) => problems.push(problem),
        }
    }
    Err(format!("the leader's host cannot be reached ({})", problems.join(", ")))
}

fn greet<S>(socket: &S, password: &[u8; 32]) -> Result<(), String>
where
    for<'a> &'a S: Read + Write,
{
    let runtime = runtime::get();
    let mut half = [0; 16];
    half.copy_from_slice(&password[..16]);
    let greeting = Greeting {
        password: half,
        replica: runtime.ring.me(),
        native: runtime.native,
        host: host::hostname(),
        pid: std::process::id(),
    };
    let mut line = serde_json::to_vec(&greeting).map_err(|error| error.to_string())?;
    line.push(b'\n');
    let mut socket: &S = socket;
    socket.write_all(&line).map_err(|error| error.to_string())?;
    let mut answer = [0; 16];
    socket.read_exact(&mut answer).map_err(|error| error.to_string())?;
    if answer == password[16..] {
        Ok(())
    } else {
        Err(String::from("something else answers there"))
    }
}

// ---- while the application runs ----

impl Helper {
    /// Marks all streams; the number to be answered.
    fn mark(&mut self, kind: Kind) -> Option<u64> {
        if self.pid != std::process::id() {
            return None;
        }
        self.next += 1;
        let marker = marker::marker(&self.secret, kind, self.next);
        for stream in &self.streams {
            // A program that has closed what it did not know may have something else there.
            if descriptors::identity(stream.writer.as_raw_fd()) != stream.identity {
                return None;
            }
            descriptors::write_all(stream.writer.as_raw_fd(), &marker).ok()?;
        }
        Some(self.next)
    }

    /// The next thing that the helper says, by a time; `meanwhile` runs again and again.
    fn hear(&mut self, until: Instant, mut meanwhile: impl FnMut()) -> Option<Answer> {
        let _ = self.control.set_nonblocking(true);
        loop {
            if let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.said.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let mut buffer = [0; 4096];
            match (&self.control).read(&mut buffer) {
                Ok(length @ 1..) => self.said.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    if Instant::now() > until {
                        return None;
                    }
                    meanwhile();
                    let mut polls = [Poll::new(self.control.as_raw_fd(), true, false)];
                    descriptors::wait(&mut polls, 1);
                }
                _ => {
                    self.gone = true;
                    return None;
                }
            }
        }
    }

    /// Waits until what was written before a mark is out.
    fn wait(&mut self, number: u64, until: Instant, mut meanwhile: impl FnMut()) -> Option<Findings> {
        loop {
            match self.hear(until, &mut meanwhile)? {
                Answer::Out(out) if out >= number => return None,
                Answer::Compared(out, findings) if out >= number => return Some(findings),
                _ => {}
            }
        }
    }
}

/// In MPI_Finalize: what was written until now is out and compared when this returns, as far as this process has to see to it.
pub fn at_finalize() {
    if lock(&HELPER).is_none() {
        return;
    }
    finalize::flush_streams();
    let mut helper = lock(&HELPER);
    let Some(helper) = helper.as_mut() else { return };
    let Some(number) = helper.mark(Kind::Compare) else { return };
    // A follower's part is done; the leader's helper waits for all replicas, which MPI_Finalize does anyway.
    if helper.role != Role::Follow {
        let never = Instant::now() + Duration::from_secs(86_400 * 365);
        let findings = helper.wait(number, never, || {
            host::progress();
            request::reap();
        });
        *lock(&FINDINGS) = findings;
    }
}

/// What the comparison found, for this process's record: counts, wrong lines by native rank, events.
pub fn findings() -> (OutputCounts, Vec<(u32, u64)>, Vec<Event>) {
    let runtime = runtime::get();
    let native_of = |replica: usize| runtime.map.native_of(runtime.virtual_rank, replica as u32);
    let mut events = Vec::new();
    if let Some(why) = &*lock(&UNABLE) {
        events.push(Event {
            kind: EventKind::Note,
            native: runtime.native,
            peer: None,
            communicator: why.clone(),
            tag: None,
            bytes: 0,
            time_s: 0.0,
        });
    }
    let Some(findings) = lock(&FINDINGS).clone() else { return (OutputCounts::default(), Vec::new(), events) };
    let counts =
        OutputCounts { bytes: findings.bytes, mismatched: findings.mismatched, corrected: findings.corrected };
    let suspected = findings.suspected.iter().enumerate().filter(|(_, count)| **count > 0);
    let suspected = suspected.map(|(replica, count)| (native_of(replica), *count)).collect();
    events.extend(findings.events.into_iter().map(|found| Event {
        kind: EventKind::Output,
        native: runtime.native,
        peer: match found.replicas[..] {
            [one] => Some(native_of(usize::from(one))),
            [_, other] => Some(native_of(usize::from(other))),
            _ => None,
        },
        communicator: found.place,
        tag: None,
        bytes: found.bytes,
        time_s: found.time_s,
    }));
    (counts, suspected, events)
}

/// Has everything out that was written, in bounded time: the process is about to end.
fn out(kind: Kind) {
    // Not if another thread is at it: it may have been this one, interrupted by a signal.
    let Ok(mut helper) = HELPER.try_lock() else { return };
    let Some(helper) = helper.as_mut() else { return };
    let until = Instant::now() + runtime::get().config.stdio_delay + Duration::from_secs(3);
    if let Some(number) = helper.mark(kind) {
        helper.wait(number, until, || ());
    }
}

/// Before the job is ended: by MPI_Abort, or by redmpi itself.
pub fn before_abort() {
    out(Kind::Hurry);
    // What other ranks have written may wait in their helpers for as long as the delay.
    if lock(&HELPER).as_ref().is_some_and(|helper| helper.pid == std::process::id()) {
        std::thread::sleep(others());
    }
}

/// How long a process that is about to end the job lets other ranks' helpers show what they have.
fn others() -> Duration {
    let config = &runtime::get().config;
    config.stdio_delay.min(if config.stdio == Stdio::Vote { Duration::from_secs(1) } else { Duration::ZERO })
}

/// When the process exits, after the application's exit handlers.
pub fn at_exit() {
    // A forked child may have inherited the lock as another thread of its parent's held it.
    let helped = HELPER.try_lock().is_ok_and(|helper| helper.as_ref().is_some_and(|it| it.pid == std::process::id()));
    if helped {
        finalize::flush_streams();
        out(Kind::Exit);
    }
}

// ---- crashes ----

/// Signals by which a program ends that has failed. (Nothing can be done about SIGKILL.)
const FATAL: [c_int; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT];

/// What the signal handler needs: everything is made before, for it may allocate nothing and take no lock.
struct Crash {
    pid: i32,
    control: RawFd,
    streams: [RawFd; 2],
    identities: [Option<(u64, u64, u64)>; 2],
    marker: [u8; marker::LENGTH],
    patience: c_int,
    others: c_int,
    before: [libc::sigaction; FATAL.len()],
}

static CRASH: AtomicPtr<Crash> = AtomicPtr::new(std::ptr::null_mut());

/// mpirun ends a job, and listens no more, as soon as a process of it has died of a signal: what the process has written has to
/// be out before. Whatever handler there was comes afterwards.
fn catch_crashes(helper: &Helper) {
    let mut crash = Box::new(Crash {
        pid: std::process::id() as i32,
        control: helper.control.as_raw_fd(),
        streams: [-1; 2],
        identities: [None; 2],
        marker: marker::marker(&helper.secret, Kind::Hurry, u64::MAX >> 8),
        patience: (runtime::get().config.stdio_delay.as_millis() as c_int).saturating_add(1000),
        others: others().as_millis() as c_int,
        // SAFETY: plain data; filled below.
        before: unsafe { std::mem::zeroed() },
    });
    for (index, stream) in helper.streams.iter().take(2).enumerate() {
        crash.streams[index] = stream.writer.as_raw_fd();
        crash.identities[index] = stream.identity;
    }
    for (signal, before) in FATAL.iter().zip(&mut crash.before) {
        // SAFETY: asks what there is.
        unsafe { libc::sigaction(*signal, std::ptr::null(), before) };
    }
    // A handler of the program's own may mean that the signal is nothing unusual there; Open MPI's prints and lets die.
    let usual = |before: &libc::sigaction| {
        let of_open_mpi = || descriptors::file_of(before.sa_sigaction as *const ());
        let named = |file: PathBuf| file.to_string_lossy().contains("libopen-pal");
        before.sa_sigaction == libc::SIG_DFL || of_open_mpi().is_some_and(named)
    };
    let signals: Vec<c_int> =
        FATAL.iter().zip(&crash.before).filter(|(_, before)| usual(before)).map(|(signal, _)| *signal).collect();
    // Leaked on purpose: the handler may run at any time.
    CRASH.store(Box::into_raw(crash), Ordering::Release);
    for signal in signals {
        // SAFETY: a handler that lives as long as the process, and that calls nothing but system calls.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = crashed as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
}

extern "C" fn crashed(signal: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: set before the handler was, and never freed or written to again.
    let Some(crash) = (unsafe { CRASH.load(Ordering::Acquire).as_ref() }) else { return };
    for (_, before) in FATAL.iter().zip(&crash.before).filter(|(fatal, _)| **fatal == signal) {
        // SAFETY: puts back what was there, which is then called for this crash too.
        unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
    }
    // SAFETY: a system call. A forked child is not the process that is helped.
    if unsafe { libc::getpid() } == crash.pid {
        let known = |index: &usize| descriptors::identity(crash.streams[*index]) == crash.identities[*index];
        let mut marked = false;
        for index in (0..2).filter(|index| crash.streams[*index] >= 0).filter(known) {
            marked |= descriptors::write_all(crash.streams[index], &crash.marker).is_ok();
        }
        if marked {
            let mut polls = [Poll::new(crash.control, true, false)];
            descriptors::wait(&mut polls, crash.patience);
            // As in `before_abort`.
            descriptors::wait(&mut [], crash.others);
        }
    }
    // SAFETY: the kernel's description of the signal. One that the processor raised comes again when we return; one that was
    // sent has to be sent again.
    unsafe {
        if information.is_null() || (*information).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

extern "C" {
    fn PMPI_Abort(comm: *mut mpi::ompi_communicator_t, code: c_int) -> c_int;
}

unsafe extern "C" fn abort(comm: *mut mpi::ompi_communicator_t, code: c_int) -> c_int {
    guard("MPI_Abort", (), before_abort);
    // SAFETY: Open MPI's own function, with what the application gave.
    unsafe { PMPI_Abort(comm, code) }
}

/// The function that stands in for a name.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let name = name.strip_prefix(b"P").unwrap_or(name);
    (name == b"MPI_Abort").then_some(abort as *const () as usize)
}
