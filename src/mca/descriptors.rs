//! Safe faces of the system calls that the comparison of output needs: for the application's process (`mca::stdio`) and
//! for its helper (the hidden `redmpi stdio`), which is outside of the fence and has no `unsafe` of its own.

use std::ffi::{c_char, c_int, CStr, CString};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;

fn result(value: c_int) -> io::Result<c_int> {
    if value < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// Takes over a descriptor that this process inherited for it; `None` if there is none of that number, or if it is one of
/// the standard three, which belong to the standard library.
pub fn inherited(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: a system call on a number.
    if number <= 2 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: open, as just seen; the helper takes each number once, at its start, before it opens anything itself.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A second descriptor of the same, far from the numbers that programs take for granted; not passed on to programs.
pub fn duplicate(of: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: a system call on a number; what it returns is ours.
    unsafe { Ok(OwnedFd::from_raw_fd(result(libc::fcntl(of, libc::F_DUPFD_CLOEXEC, 64))?)) }
}

/// Puts a descriptor in the place of another, as the shell's `>&` does.
pub fn replace(at: RawFd, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: system calls; the number is the application's standard stream, which nobody owns.
    result(unsafe { libc::dup2(by.as_raw_fd(), at) }).map(drop)
}

/// Reads and writes return at once from now on, for everybody who has this pipe, terminal or socket.
pub fn never_block(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let number = descriptor.as_raw_fd();
    // SAFETY: system calls on an open descriptor.
    unsafe {
        let flags = result(libc::fcntl(number, libc::F_GETFL))?;
        result(libc::fcntl(number, libc::F_SETFL, flags | libc::O_NONBLOCK)).map(drop)
    }
}

/// What a descriptor is open on, to tell whether two are the same and whether one is still what it was.
pub fn identity(number: RawFd) -> Option<(u64, u64, u64)> {
    // SAFETY: a system call that fills a plain structure.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(number, &mut status) == 0).then_some((status.st_dev, status.st_ino, status.st_rdev))
    }
}

/// Whether it is a terminal.
pub fn is_terminal(number: RawFd) -> bool {
    // SAFETY: a system call on a number.
    unsafe { libc::isatty(number) == 1 }
}

/// Writes all of it, whatever the descriptor is; `Err` where it cannot be written.
pub fn write_all(number: RawFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: a system call with a slice's bounds.
        match unsafe { libc::write(number, bytes.as_ptr().cast(), bytes.len()) } {
            written @ 0.. => bytes = &bytes[written as usize..],
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut poll = [Poll::new(number, false, true)];
                    wait(&mut poll, 1000);
                }
                error => return Err(error),
            },
        }
    }
    Ok(())
}

/// A terminal to read from and one to write to, raw, with the settings of another: for a stream that was a terminal, so that
/// the program goes on to write line by line.
pub fn terminal(like: RawFd) -> io::Result<(OwnedFd, OwnedFd)> {
    // SAFETY: system calls with plain structures and a buffer of the length that is told; what is opened is ours.
    unsafe {
        let reader = result(libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC))?;
        let reader = OwnedFd::from_raw_fd(reader);
        result(libc::grantpt(reader.as_raw_fd()))?;
        result(libc::unlockpt(reader.as_raw_fd()))?;
        let mut name = [0 as c_char; 128];
        let error = libc::ptsname_r(reader.as_raw_fd(), name.as_mut_ptr(), name.len());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        let writer = result(libc::open(name.as_ptr(), libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC))?;
        let writer = OwnedFd::from_raw_fd(writer);
        let mut settings: libc::termios = std::mem::zeroed();
        result(libc::tcgetattr(like, &mut settings))?;
        libc::cfmakeraw(&mut settings);
        result(libc::tcsetattr(writer.as_raw_fd(), libc::TCSANOW, &settings))?;
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(like, libc::TIOCGWINSZ, &mut size) == 0 {
            libc::ioctl(writer.as_raw_fd(), libc::TIOCSWINSZ, &size);
        }
        Ok((reader, writer))
    }
}

/// One descriptor to wait for, and what became of it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Poll(libc::pollfd);

impl Poll {
    /// Wait until it can be read, written, or is hung up (which is always told).
    pub fn new(number: RawFd, read: bool, write: bool) -> Poll {
        let events = if read { libc::POLLIN } else { 0 } | if write { libc::POLLOUT } else { 0 };
        Poll(libc::pollfd { fd: number, events, revents: 0 })
    }
    /// There is something to read, or the end of it.
    pub fn readable(self) -> bool {
        self.0.revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0
    }
    /// Something can be written, or an error is to be had.
    pub fn writable(self) -> bool {
        self.0.revents & (libc::POLLOUT | libc::POLLHUP | libc::POLLERR) != 0
    }
    /// The other side is gone.
    pub fn hung_up(self) -> bool {
        self.0.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

/// Waits for any of them, at most so many milliseconds (-1: for ever).
pub fn wait(descriptors: &mut [Poll], milliseconds: i32) {
    // SAFETY: `Poll` is a `pollfd` in memory; the length is the slice's.
    unsafe { libc::poll(descriptors.as_mut_ptr().cast(), descriptors.len() as libc::nfds_t, milliseconds) };
}

/// Becomes readable when a process is gone; `None` where the system cannot do that or there is no such process.
pub fn process(pid: u32) -> Option<OwnedFd> {
    // SAFETY: a system call; what it returns is ours.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) as c_int;
        (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor))
    }
}

/// Closes every descriptor from a number on: what a parent had open and did not mean to pass on would stay open as long as
/// this process lives.
pub fn close_from(number: RawFd) {
    // SAFETY: called at the start of the helper, before anything of its own is open.
    unsafe {
        if libc::syscall(libc::SYS_close_range, number as libc::c_uint, libc::c_uint::MAX, 0) < 0 {
            (number..4096).for_each(|number| {
                libc::close(number);
            });
        }
    }
}

/// Goes on as a process of its own: no child of the caller's parent (whose `wait` must not see it), in a session of its own
/// (so that signals to the job pass it by), and deaf to signals that end jobs.
pub fn detach() -> io::Result<()> {
    // SAFETY: the process has one thread; the parent's side ends at once, without handlers.
    unsafe {
        if result(libc::fork())? > 0 {
            libc::_exit(0);
        }
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    Ok(())
}

/// Starts a program with exactly these descriptors (as 0, 1, 2 …), in the caller's environment without `LD_PRELOAD`, and
/// waits until it has gone into the background (see [`detach`]).
///
/// # Errors
/// It cannot be started, or has ended with another status than 0.
pub fn start(program: &Path, arguments: &[&CStr], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let path = CString::new(program.as_os_str().as_encoded_bytes())?;
    let mut argv: Vec<*mut c_char> = vec![path.as_ptr().cast_mut()];
    argv.extend(arguments.iter().map(|word| word.as_ptr().cast_mut()));
    argv.push(std::ptr::null_mut());
    let environment: Vec<CString> = std::env::vars_os()
        .filter(|(name, _)| name != "LD_PRELOAD")
        .filter_map(|(name, value)| {
            CString::new([name.as_encoded_bytes(), b"=", value.as_encoded_bytes()].concat()).ok()
        })
        .collect();
    let mut envp: Vec<*mut c_char> = environment.iter().map(|entry| entry.as_ptr().cast_mut()).collect();
    envp.push(std::ptr::null_mut());
    // Out of the way of the numbers that they are to get.
    let high: Vec<OwnedFd> =
        descriptors.iter().map(|descriptor| duplicate(descriptor.as_raw_fd())).collect::<io::Result<_>>()?;
    let check = |error: c_int| if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) };
    // SAFETY: the structures are made, used and destroyed here; the arrays end with null and live until the call is over.
    // posix_spawn does not copy the process, which may have memory that a network card knows.
    let pid = unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = std::mem::zeroed();
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        check(libc::posix_spawn_file_actions_init(&mut actions))?;
        check(libc::posix_spawnattr_init(&mut attributes))?;
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::posix_spawnattr_setsigmask(&mut attributes, &none);
        libc::posix_spawnattr_setflags(&mut attributes, libc::POSIX_SPAWN_SETSIGMASK as libc::c_short);
        let mut pid = 0;
        let mut spawned = Ok(());
        for (number, descriptor) in high.iter().enumerate() {
            let (from, to) = (descriptor.as_raw_fd(), number as c_int);
            spawned = spawned.and(check(libc::posix_spawn_file_actions_adddup2(&mut actions, from, to)));
        }
        let spawned = spawned.and_then(|()| {
            check(libc::posix_spawn(&mut pid, path.as_ptr(), &actions, &attributes, argv.as_ptr(), envp.as_ptr()))
        });
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::posix_spawnattr_destroy(&mut attributes);
        spawned?;
        pid
    };
    loop {
        let mut status = 0;
        // SAFETY: our own child, and a place for its status.
        match result(unsafe { libc::waitpid(pid, &mut status, 0) }) {
            Ok(_) if status == 0 => return Ok(()),
            Ok(_) if libc::WIFSIGNALED(status) => {
                return Err(io::Error::other(format!("it was ended by signal {}", libc::WTERMSIG(status))))
            }
            Ok(_) => return Err(io::Error::other(format!("it ended with status {}", libc::WEXITSTATUS(status)))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The application ignores its children's ends, so the system forgets them.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// The file that a function was loaded from.
pub fn file_of(function: *const ()) -> Option<std::path::PathBuf> {
    // SAFETY: glibc fills the structure; the name stays as long as the object is loaded, which is for good.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function.cast(), &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let bytes = CStr::from_ptr(info.dli_fname).to_bytes();
        Some(std::path::PathBuf::from(std::ffi::OsStr::new(std::str::from_utf8(bytes).ok()?)))
    }
}

/// Addresses of this host that others may reach.
pub fn addresses() -> Vec<IpAddr> {
    let mut found = Vec::new();
    // SAFETY: the list is glibc's until it is freed; an address is read as what its family says.
    unsafe {
        let mut list = std::ptr::null_mut();
        if libc::getifaddrs(&mut list) != 0 {
            return found;
        }
        let mut entry = list;
        while let Some(interface) = entry.as_ref() {
            entry = interface.ifa_next;
            let flags = interface.ifa_flags as c_int;
            if flags & libc::IFF_UP == 0 || flags & libc::IFF_LOOPBACK != 0 || interface.ifa_addr.is_null() {
                continue;
            }
            match c_int::from((*interface.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = *interface.ifa_addr.cast::<libc::sockaddr_in>();
                    found.push(IpAddr::from(address.sin_addr.s_addr.to_ne_bytes()));
                }
                libc::AF_INET6 => {
                    let address = *interface.ifa_addr.cast::<libc::sockaddr_in6>();
                    found.push(IpAddr::from(address.sin6_addr.s6_addr));
                }
                _ => {}
            }
        }
        libc::freeifaddrs(list);
    }
    // An address that holds for one cable only does not say which.
    found.retain(|address| !matches!(address, IpAddr::V6(six) if six.is_unicast_link_local()));
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

/// Bytes that nobody can guess.
pub fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    io::Read::read_exact(&mut File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes)
}

/// Leaves a descriptor open until the process ends.
pub fn keep(descriptor: OwnedFd) -> RawFd {
    descriptor.into_raw_fd()
}

/// A dead connection is noticed, also when the other host is gone without a word.
pub fn keep_alive(socket: BorrowedFd<'_>) {
    for (level, option, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 20),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 4),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
    ] {
        let length = size_of::<c_int>() as libc::socklen_t;
        // SAFETY: a system call with a plain number; it fails on a local socket, which needs none of this.
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    }
}
