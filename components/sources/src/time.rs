//! The clock before MPI_Init. Nothing can be shared yet, so the clock is a logical one: it starts when the job was
//! started and takes a small step at each reading; who sleeps moves it on. So it is the same in every replica of a
//! program that behaves the same, it never goes back, and a loop that waits for a time ends.
//!
//! All clocks of a program, and of the programs that a native rank runs one after the other, stand on one count of
//! nanoseconds (`Page::ticks`); processor time is the readings' part of it. It is moved by the threads that run `main`; other threads, and forked processes, have
//! counts of their own that never lie behind it, and so cannot disturb it.
//!
//! Absolute times that a program waits for (`deadline`) are translated, before MPI_Init and after it.

use crate::guard::quiet;
use crate::job::Epoch;
use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, Ordering};

/// A reading takes this long, ns. Roughly what a reading and a system call take: a loop that looks at something until a
/// time is over does not look much less often than it would without us.
const STEP: i64 = 1000;
const SECOND: i64 = 1_000_000_000;

static LOGICAL: AtomicBool = AtomicBool::new(false);
static REAL: AtomicI64 = AtomicI64::new(0);
static MONOTONIC: AtomicI64 = AtomicI64::new(0);
static NOWHERE: AtomicI64 = AtomicI64::new(0);
/// Readings of this program, times their step: its processor time.
static STEPS: AtomicI64 = AtomicI64::new(0);
static TICKS: AtomicPtr<AtomicI64> = AtomicPtr::new((&raw const NOWHERE).cast_mut());

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
    static OWN: Cell<i64> = const { Cell::new(0) };
}

/// Clocks that advance together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// The time of day.
    Real,
    /// Time since the machine was started.
    Monotonic,
    /// Time of the processor spent here.
    Processor,
}

impl Family {
    /// The family of a clock; `None` for clocks of other processes, of devices, and of alarms.
    pub fn of(clock: libc::clockid_t) -> Option<Family> {
        match clock {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => Some(Family::Real),
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_BOOTTIME => Some(Family::Monotonic),
            libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID => Some(Family::Processor),
            _ => None,
        }
    }

    /// The family of an absolute time whose clock is not known: nobody's machine has run for thirty years.
    fn of_time(time: i64) -> Family {
        if time > SECOND * 1_000_000_000 {
            Family::Real
        } else {
            Family::Monotonic
        }
    }
}

/// Nanoseconds of a time.
pub fn nanoseconds(time: &libc::timespec) -> i64 {
    time.tv_sec.saturating_mul(SECOND).saturating_add(time.tv_nsec)
}

/// A time of so many nanoseconds.
pub fn timespec(nanoseconds: i64) -> libc::timespec {
    libc::timespec { tv_sec: nanoseconds.div_euclid(SECOND), tv_nsec: nanoseconds.rem_euclid(SECOND) }
}

/// This machine's own clock, ns.
pub fn own(family: Family) -> i64 {
    let clock = match family {
        Family::Real => libc::CLOCK_REALTIME,
        Family::Monotonic => libc::CLOCK_MONOTONIC,
        Family::Processor => libc::CLOCK_PROCESS_CPUTIME_ID,
    };
    let mut time = timespec(0);
    // SAFETY: a place of ours.
    unsafe { libc::clock_gettime(clock, &mut time) };
    nanoseconds(&time)
}

/// The moment that a job's clock can start from.
pub fn epoch_now() -> Epoch {
    Epoch { real: own(Family::Real), monotonic: own(Family::Monotonic) }
}

/// From here on the clock is logical, and the calling thread moves it.
pub fn start(epoch: Epoch, ticks: &'static AtomicI64) {
    REAL.store(epoch.real, Ordering::Relaxed);
    MONOTONIC.store(epoch.monotonic, Ordering::Relaxed);
    TICKS.store(std::ptr::from_ref(ticks).cast_mut(), Ordering::Relaxed);
    MAIN.set(true);
    LOGICAL.store(true, Ordering::Release);
}

/// From here on clocks are the system's.
pub fn stop() {
    LOGICAL.store(false, Ordering::Relaxed);
}

/// A forked process must not move its parent's clock.
pub fn forked() {
    MAIN.set(false);
}

fn logical() -> bool {
    LOGICAL.load(Ordering::Acquire)
}

fn ticks() -> &'static AtomicI64 {
    // SAFETY: points to a static, or to what `start` got, which lives as long as the process.
    unsafe { &*TICKS.load(Ordering::Relaxed) }
}

/// Moves this thread's count, and says where it is.
fn advance(by: i64) -> i64 {
    if MAIN.get() {
        return ticks().fetch_add(by, Ordering::Relaxed).saturating_add(by);
    }
    let count = OWN.get().saturating_add(by).max(ticks().load(Ordering::Relaxed));
    OWN.set(count);
    count
}

fn at(family: Family, count: i64) -> i64 {
    match family {
        Family::Real => REAL.load(Ordering::Relaxed) + count,
        Family::Monotonic => MONOTONIC.load(Ordering::Relaxed) + count,
        Family::Processor => STEPS.load(Ordering::Relaxed),
    }
}

/// Where the logical clock is, ns; without a step.
pub fn now(family: Family) -> Option<i64> {
    logical().then(|| at(family, advance(0)))
}

fn read(family: Family) -> Option<i64> {
    quiet(None, || {
        logical().then(|| {
            if MAIN.get() {
                STEPS.fetch_add(STEP, Ordering::Relaxed);
            }
            at(family, advance(STEP))
        })
    })
}

// ---- reading ----

unsafe extern "C-unwind" fn time(place: *mut libc::time_t) -> libc::time_t {
    // SAFETY: the caller's place, or null.
    unsafe {
        let Some(now) = read(Family::Real) else { return libc::time(place) };
        let seconds = now / SECOND;
        if !place.is_null() {
            *place = seconds;
        }
        seconds
    }
}

unsafe extern "C-unwind" fn gettimeofday(place: *mut libc::timeval, zone: *mut c_void) -> c_int {
    // SAFETY: the caller's places.
    unsafe {
        match read(Family::Real) {
            Some(now) if !place.is_null() => {
                if !zone.is_null() {
                    libc::gettimeofday(place, zone.cast());
                }
                *place = libc::timeval { tv_sec: now / SECOND, tv_usec: now % SECOND / 1000 };
                0
            }
            _ => libc::gettimeofday(place, zone.cast()),
        }
    }
}

unsafe extern "C-unwind" fn clock_gettime(clock: libc::clockid_t, place: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's place.
    unsafe {
        match Family::of(clock).filter(|_| !place.is_null()).and_then(read) {
            Some(now) => {
                *place = timespec(now);
                0
            }
            None => libc::clock_gettime(clock, place),
        }
    }
}

unsafe extern "C-unwind" fn timespec_get(place: *mut libc::timespec, base: c_int) -> c_int {
    extern "C" {
        #[link_name = "timespec_get"]
        fn real(place: *mut libc::timespec, base: c_int) -> c_int;
    }
    // SAFETY: the caller's place.
    unsafe {
        match read(Family::Real) {
            Some(now) if base == 1 && !place.is_null() => {
                *place = timespec(now);
                base
            }
            _ => real(place, base),
        }
    }
}

extern "C" {
    #[link_name = "clock"]
    fn libc_clock() -> libc::clock_t;
}

unsafe extern "C-unwind" fn clock() -> libc::clock_t {
    // SAFETY: no conditions.
    read(Family::Processor).map_or_else(|| unsafe { libc_clock() }, |now| now / 1000)
}

unsafe extern "C-unwind" fn getrusage(who: c_int, place: *mut libc::rusage) -> c_int {
    // SAFETY: the caller's place; a usage of nothing but time is all zero.
    unsafe {
        match read(Family::Processor) {
            Some(now) if !place.is_null() && (-1..=1).contains(&who) => {
                *place = std::mem::zeroed();
                (*place).ru_utime = libc::timeval { tv_sec: now / SECOND, tv_usec: now % SECOND / 1000 };
                0
            }
            _ => libc::getrusage(who as _, place),
        }
    }
}

unsafe extern "C-unwind" fn times(place: *mut libc::tms) -> libc::clock_t {
    // SAFETY: the caller's place; a system call.
    unsafe {
        let Some(now) = read(Family::Monotonic) else { return libc::times(place) };
        let tick = SECOND / libc::sysconf(libc::_SC_CLK_TCK).clamp(1, SECOND);
        if !place.is_null() {
            *place = std::mem::zeroed();
            (*place).tms_utime = STEPS.load(Ordering::Relaxed) / tick;
        }
        now / tick
    }
}

unsafe extern "C-unwind" fn system_now() -> i64 {
    read(Family::Real).unwrap_or_else(|| own(Family::Real))
}

unsafe extern "C-unwind" fn steady_now() -> i64 {
    read(Family::Monotonic).unwrap_or_else(|| own(Family::Monotonic))
}

// ---- sleeping: really, and on the logical clock ----

fn slept(nanoseconds: i64) {
    quiet((), || {
        if logical() && nanoseconds > 0 {
            advance(nanoseconds);
        }
    });
}

/// What can be cancelled may unwind through us: no destructors between the call and the return.
macro_rules! sleeping {
    ($name:ident ( $($argument:ident : $type:ty),* ) -> $result:ty, $duration:expr, $over:expr) => {
        unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            extern "C-unwind" {
                #[link_name = stringify!($name)]
                fn real($($argument: $type),*) -> $result;
            }
            // SAFETY: what the caller gave.
            unsafe {
                let duration: i64 = $duration;
                let result = real($($argument),*);
                let over: fn($result) -> bool = $over;
                if over(result) {
                    slept(duration);
                }
                result
            }
        }
    };
}

unsafe fn of_timespec(time: *const libc::timespec) -> i64 {
    // SAFETY: null, or the caller's time.
    unsafe { time.as_ref() }.map_or(0, nanoseconds)
}

unsafe fn of_timeval(time: *const libc::timeval) -> i64 {
    // SAFETY: null, or the caller's time.
    unsafe { time.as_ref() }.map_or(0, |time| time.tv_sec * SECOND + time.tv_usec * 1000)
}

fn of_milliseconds(time: c_int) -> i64 {
    i64::from(time) * 1_000_000
}

sleeping!(nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int, of_timespec(time), |r| r == 0);
sleeping!(usleep(time: c_uint) -> c_int, i64::from(time) * 1000, |r| r == 0);
sleeping!(sleep(time: c_uint) -> c_uint, i64::from(time) * SECOND, |r| r == 0);
sleeping!(poll(list: *mut c_void, count: libc::nfds_t, time: c_int) -> c_int, of_milliseconds(time), |r| r == 0);
sleeping!(ppoll(list: *mut c_void, count: libc::nfds_t, time: *const libc::timespec, mask: *const c_void) -> c_int,
    of_timespec(time), |r| r == 0);
sleeping!(select(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, time: *mut libc::timeval) -> c_int,
    of_timeval(time), |r| r == 0);
sleeping!(pselect(count: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void, time: *const libc::timespec,
    mask: *const c_void) -> c_int, of_timespec(time), |r| r == 0);
sleeping!(epoll_wait(set: c_int, events: *mut c_void, count: c_int, time: c_int) -> c_int, of_milliseconds(time),
    |r| r == 0);
sleeping!(epoll_pwait(set: c_int, events: *mut c_void, count: c_int, time: c_int, mask: *const c_void) -> c_int,
    of_milliseconds(time), |r| r == 0);

/// The function that stands in for a name before MPI_Init.
pub fn replacement(name: &[u8]) -> Option<usize> {
    let address = match name {
        b"time" => time as *const (),
        b"gettimeofday" => gettimeofday as *const (),
        b"clock_gettime" | b"__clock_gettime" => clock_gettime as *const (),
        b"timespec_get" => timespec_get as *const (),
        b"clock" => clock as *const (),
        b"getrusage" => getrusage as *const (),
        b"times" => times as *const (),
        b"_ZNSt6chrono3_V212system_clock3nowEv" => system_now as *const (),
        b"_ZNSt6chrono3_V212steady_clock3nowEv" => steady_now as *const (),
        b"nanosleep" => nanosleep as *const (),
        b"usleep" => usleep as *const (),
        b"sleep" => sleep as *const (),
        b"poll" => poll as *const (),
        b"ppoll" => ppoll as *const (),
        b"select" => select as *const (),
        b"pselect" => pselect as *const (),
        b"epoll_wait" => epoll_wait as *const (),
        b"epoll_pwait" => epoll_pwait as *const (),
        _ => return deadline::replacement(name),
    };
    Some(address as usize)
}

/// Waiting until an absolute time. The program has computed it from the clock that it is told, and the system waits by its
/// own: what lies between the two is taken off.
pub mod deadline {
    use super::*;

    /// After MPI_Init: how far the clocks that the program is told are ahead of this machine's, ns.
    static OFFSETS: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];

    /// Says how far a clock is ahead of this machine's.
    pub fn set_offset(family: Family, nanoseconds: i64) {
        match family {
            Family::Real => OFFSETS[0].store(nanoseconds, Ordering::Relaxed),
            Family::Monotonic => OFFSETS[1].store(nanoseconds, Ordering::Relaxed),
            Family::Processor => {}
        }
    }

    /// How far a clock is ahead of this machine's, ns.
    pub fn offset(family: Family) -> i64 {
        match family {
            Family::Real => OFFSETS[0].load(Ordering::Relaxed),
            Family::Monotonic => OFFSETS[1].load(Ordering::Relaxed),
            Family::Processor => 0,
        }
    }

    /// The time by this machine's clock.
    fn translated(clock: Option<libc::clockid_t>, time: i64) -> i64 {
        let family = match clock {
            Some(clock) => match Family::of(clock) {
                Some(family) => family,
                None => return time,
            },
            None => Family::of_time(time),
        };
        match now(family) {
            Some(now) => own(family).saturating_add(time - now),
            None => time.saturating_sub(offset(family)),
        }
    }

    /// The logical clock has reached a time that was waited for.
    fn reached(clock: Option<libc::clockid_t>, time: i64) {
        let family = clock.map_or_else(|| Some(Family::of_time(time)), Family::of);
        if let Some(now) = family.and_then(now) {
            slept(time - now);
        }
    }

    /// # Safety
    /// `time` is null or the caller's time.
    unsafe fn own_time(
        clock: Option<libc::clockid_t>,
        time: *const libc::timespec,
        place: &mut libc::timespec,
    ) -> bool {
        // SAFETY: as the caller says.
        let Some(time) = (unsafe { time.as_ref() }) else { return false };
        if !(0..SECOND).contains(&time.tv_nsec) {
            return false; // an error, which the C library tells
        }
        quiet(false, || {
            *place = timespec(translated(clock, nanoseconds(time)));
            true
        })
    }

    macro_rules! until {
        ($name:ident ( $($argument:ident : $type:ty),* ; $time:ident), $clock:expr) => {
            unsafe extern "C-unwind" fn $name($($argument: $type,)* $time: *const libc::timespec) -> c_int {
                extern "C-unwind" {
                    #[link_name = stringify!($name)]
                    fn real($($argument: $type,)* time: *const libc::timespec) -> c_int;
                }
                let mut place = timespec(0);
                // SAFETY: what the caller gave, with a time that lives until the call is over.
                unsafe {
                    let clock: Option<libc::clockid_t> = $clock;
                    let ours = own_time(clock, $time, &mut place);
                    let result = real($($argument,)* if ours { &raw const place } else { $time });
                    let over = result == libc::ETIMEDOUT
                        || (result == -1 && *libc::__errno_location() == libc::ETIMEDOUT);
                    if over && ours {
                        quiet((), || reached(clock, nanoseconds(&*$time)));
                    }
                    result
                }
            }
        };
    }

    until!(pthread_cond_timedwait(condition: *mut c_void, mutex: *mut c_void; time), None);
    until!(pthread_cond_clockwait(condition: *mut c_void, mutex: *mut c_void, clock: libc::clockid_t; time), Some(clock));
    until!(pthread_mutex_timedlock(mutex: *mut c_void; time), None);
    until!(pthread_mutex_clocklock(mutex: *mut c_void, clock: libc::clockid_t; time), Some(clock));
    until!(pthread_rwlock_timedrdlock(rwlock: *mut c_void; time), None);
    until!(pthread_rwlock_timedwrlock(rwlock: *mut c_void; time), None);
    until!(sem_timedwait(semaphore: *mut c_void; time), None);
    until!(sem_clockwait(semaphore: *mut c_void, clock: libc::clockid_t; time), Some(clock));

    unsafe extern "C-unwind" fn clock_nanosleep(
        clock: libc::clockid_t,
        flags: c_int,
        time: *const libc::timespec,
        left: *mut libc::timespec,
    ) -> c_int {
        extern "C-unwind" {
            #[link_name = "clock_nanosleep"]
            fn real(
                clock: libc::clockid_t,
                flags: c_int,
                time: *const libc::timespec,
                left: *mut libc::timespec,
            ) -> c_int;
        }
        let mut place = timespec(0);
        // SAFETY: what the caller gave, with a time that lives until the call is over.
        unsafe {
            if flags & libc::TIMER_ABSTIME == 0 {
                let result = real(clock, flags, time, left);
                if result == 0 {
                    slept(of_timespec(time));
                }
                return result;
            }
            let ours = own_time(Some(clock), time, &mut place);
            let result = real(clock, flags, if ours { &raw const place } else { time }, left);
            if result == 0 && ours {
                quiet((), || reached(Some(clock), nanoseconds(&*time)));
            }
            result
        }
    }

    unsafe extern "C-unwind" fn timerfd_settime(
        timer: c_int,
        flags: c_int,
        new: *const libc::itimerspec,
        old: *mut libc::itimerspec,
    ) -> c_int {
        // SAFETY: what the caller gave; the copy lives until the call is over.
        unsafe {
            let mut copy;
            let mut given = new;
            if flags & libc::TFD_TIMER_ABSTIME != 0 && !new.is_null() && nanoseconds(&(*new).it_value) > 0 {
                copy = *new;
                if own_time(None, &(*new).it_value, &mut copy.it_value) {
                    given = &raw const copy;
                }
            }
            libc::timerfd_settime(timer, flags, given, old)
        }
    }

    /// The function that stands in for a name, before MPI_Init and after it.
    pub fn replacement(name: &[u8]) -> Option<usize> {
        let address = match name {
            b"pthread_cond_timedwait" => pthread_cond_timedwait as *const (),
            b"pthread_cond_clockwait" => pthread_cond_clockwait as *const (),
            b"pthread_mutex_timedlock" => pthread_mutex_timedlock as *const (),
            b"pthread_mutex_clocklock" => pthread_mutex_clocklock as *const (),
            b"pthread_rwlock_timedrdlock" => pthread_rwlock_timedrdlock as *const (),
            b"pthread_rwlock_timedwrlock" => pthread_rwlock_timedwrlock as *const (),
            b"sem_timedwait" => sem_timedwait as *const (),
            b"sem_clockwait" => sem_clockwait as *const (),
            b"clock_nanosleep" => clock_nanosleep as *const (),
            b"timerfd_settime" => timerfd_settime as *const (),
            _ => return None,
        };
        Some(address as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logical_clock_steps_sleeps_and_never_goes_back() {
        static COUNT: AtomicI64 = AtomicI64::new(0);
        let epoch = Epoch { real: 1_700_000_000 * SECOND, monotonic: 500 * SECOND };
        let reading = |clock| {
            let mut place = timespec(0);
            // SAFETY: a place of ours.
            assert_eq!(unsafe { clock_gettime(clock, &mut place) }, 0);
            nanoseconds(&place)
        };
        start(epoch, &COUNT);
        assert_eq!(reading(libc::CLOCK_REALTIME), epoch.real + STEP);
        assert_eq!(reading(libc::CLOCK_MONOTONIC), epoch.monotonic + 2 * STEP);
        // SAFETY: no conditions.
        unsafe { usleep(1500) };
        assert_eq!(reading(libc::CLOCK_MONOTONIC), epoch.monotonic + 3 * STEP + 1_500_000);
        let other = std::thread::spawn(move || (reading(libc::CLOCK_MONOTONIC), reading(libc::CLOCK_MONOTONIC)));
        let (first, second) = other.join().unwrap();
        assert!(first >= epoch.monotonic + 3 * STEP + 1_500_000 && second == first + STEP);
        assert_eq!(reading(libc::CLOCK_MONOTONIC), epoch.monotonic + 4 * STEP + 1_500_000, "a thread moved it");

        // An absolute time: 20 ms from the clock's now take 20 ms, however far it is from the machine's own.
        let begin = own(Family::Monotonic);
        let target = timespec(reading(libc::CLOCK_MONOTONIC) + 20_000_000);
        let mut semaphore = [0u64; 8];
        // SAFETY: a semaphore of ours that nobody posts (all zero is one of value 0).
        let result = unsafe { deadline_wait(semaphore.as_mut_ptr().cast(), &target) };
        assert_eq!(result, -1);
        let took = own(Family::Monotonic) - begin;
        assert!((19_000_000..5 * SECOND).contains(&took), "{took} ns");
        assert!(reading(libc::CLOCK_MONOTONIC) >= nanoseconds(&target), "the clock has reached it");
        stop();
        assert!((reading(libc::CLOCK_REALTIME) - own(Family::Real)).abs() < SECOND);
    }

    /// # Safety
    /// As for `sem_clockwait`.
    unsafe fn deadline_wait(semaphore: *mut c_void, time: &libc::timespec) -> c_int {
        let address = deadline::replacement(b"sem_clockwait").unwrap();
        // SAFETY: the function of this name and type.
        unsafe {
            let wait: unsafe extern "C-unwind" fn(*mut c_void, c_int, *const libc::timespec) -> c_int =
                std::mem::transmute(address);
            wait(semaphore, libc::CLOCK_MONOTONIC, time)
        }
    }
}
