//! The hidden `redmpi stdio`: the helper of one process of a replicated job. It reads what the process writes to standard
//! output and error; the leader's helper gets what the other replicas write from their helpers, votes and shows it.
//! docs/stdio.md has the picture. The application's process starts it (`mca::stdio`) and tells it by the control socket what
//! to do; it outlives the process until all is out, and no longer.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redmpi::descriptors::{self, Poll};
use redmpi::stdio::frame::{Frame, Reader};
use redmpi::stdio::marker::{Kind, Parser, Piece};
use redmpi::stdio::vote::{Dissent, Vote};
use redmpi::stdio::{Answer, Findings, Found, Greeting, Role, Setup, CONTROL, STREAMS};

/// Bytes that wait to be written before nothing more is read.
const ROOM: usize = 1 << 20;
/// How long a stream that somebody else holds open may be silent after the process is gone.
const SILENCE: Duration = Duration::from_secs(5);
/// How long one that comes in may take to say who it is, and how many may be at that.
const GREETING: Duration = Duration::from_secs(10);
const STRANGERS: usize = 64;

/// Runs the helper.
pub fn main() -> ExitCode {
    // Nothing is open yet that is not inherited.
    let Some(control) = descriptors::inherited(CONTROL) else {
        eprintln!("redmpi: `redmpi stdio` is started by redmpi itself, not by hand");
        return ExitCode::from(2);
    };
    if let Err(error) = descriptors::detach() {
        eprintln!("redmpi: the helper for standard output cannot go into the background: {error}");
        return ExitCode::from(2);
    }
    let _ = std::env::set_current_dir("/");
    let mut control = UnixStream::from(control);
    match setup(&control).and_then(|setup| Helper::new(setup, &control)) {
        Ok(mut helper) => {
            answer(&mut control, &Answer::Ready);
            helper.serve(control);
            ExitCode::SUCCESS
        }
        Err(error) => {
            answer(&mut control, &Answer::Unable(error));
            ExitCode::FAILURE
        }
    }
}

fn setup(control: &UnixStream) -> Result<Setup, String> {
    let mut line = String::new();
    let _ = control.set_read_timeout(Some(GREETING));
    BufReader::new(control).read_line(&mut line).map_err(|error| format!("it was not told what to do: {error}"))?;
    let setup: Setup = serde_json::from_str(&line).map_err(|error| format!("it was told nonsense: {error}"))?;
    if setup.version != env!("CARGO_PKG_VERSION") {
        let ours = env!("CARGO_PKG_VERSION");
        return Err(format!("the redmpi command is version {ours}, the library {}", setup.version));
    }
    Ok(setup)
}

fn answer(control: &mut UnixStream, answer: &Answer) {
    if let Ok(mut line) = serde_json::to_vec(answer) {
        line.push(b'\n');
        let _ = control.write_all(&line);
    }
}

// ---- writing ----

#[derive(Default)]
struct Queue {
    parts: VecDeque<Vec<u8>>,
    /// Bytes in `parts` and in the write under way.
    bytes: usize,
}

/// Writes to one of the original descriptors, in a thread: whoever reads there may be slow.
struct Writer {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

fn lock(queue: &Mutex<Queue>) -> std::sync::MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    fn new(number: RawFd, wake: UnixStream) -> Writer {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let queue = Arc::clone(&shared);
        thread::spawn(move || loop {
            let part = {
                let mut waiting = lock(&queue.0);
                loop {
                    match waiting.parts.pop_front() {
                        Some(part) => break part,
                        None => waiting = queue.1.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            // Nobody reads any more: the text has nowhere to go, and the job must not stop for that.
            let _ = descriptors::write_all(number, &part);
            lock(&queue.0).bytes -= part.len();
            let _ = (&wake).write(&[0]);
        });
        Writer { shared }
    }

    fn push(&self, part: Vec<u8>) {
        if part.is_empty() {
            return;
        }
        let mut queue = lock(&self.shared.0);
        queue.bytes += part.len();
        queue.parts.push_back(part);
        self.shared.1.notify_one();
    }

    fn waiting(&self) -> usize {
        lock(&self.shared.0).bytes
    }
}

// ---- reading ----

/// One thing that happens in a stream.
enum Event {
    Text(Vec<u8>),
    Mark(Kind, u64),
    /// The stream's end; whether the process ended by itself.
    End(bool),
}

/// A stream of the process that is helped.
struct Local {
    file: Option<File>,
    parser: Parser,
    clean: bool,
    last: Instant,
}

impl Local {
    fn read(&mut self, buffer: &mut [u8], mut each: impl FnMut(Event)) {
        let Some(file) = &mut self.file else { return };
        let clean = &mut self.clean;
        let mut pass = |piece: Piece<'_>| match piece {
            Piece::Text(text) => each(Event::Text(text.to_vec())),
            Piece::Mark(kind, number) => {
                *clean |= kind == Kind::Exit;
                each(Event::Mark(kind, number));
            }
        };
        match file.read(buffer) {
            Ok(0) => {}
            Ok(length) => {
                self.last = Instant::now();
                return self.parser.take(&buffer[..length], pass);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            // The end of a terminal is an error.
            Err(_) => {}
        }
        self.parser.end(&mut pass);
        self.file = None;
        each(Event::End(self.clean));
    }
}

/// The connection to another helper.
struct Peer {
    socket: Socket,
    reader: Reader,
    out: Vec<u8>,
    open: bool,
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(socket) => socket.as_fd(),
            Socket::Tcp(socket) => socket.as_fd(),
        }
    }
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.read(buffer),
            Socket::Tcp(socket) => socket.read(buffer),
        }
    }
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(socket) => socket.write(bytes),
            Socket::Tcp(socket) => socket.write(bytes),
        }
    }
    fn end_writing(&self) {
        let _ = match self {
            Socket::Unix(socket) => socket.shutdown(Shutdown::Write),
            Socket::Tcp(socket) => socket.shutdown(Shutdown::Write),
        };
    }
    fn of(descriptor: OwnedFd) -> Socket {
        let local = UnixStream::from(descriptor);
        match local.local_addr() {
            Ok(_) => Socket::Unix(local),
            Err(_) => Socket::Tcp(TcpStream::from(OwnedFd::from(local))),
        }
    }
}

impl Peer {
    fn new(socket: Socket) -> Peer {
        let _ = descriptors::never_block(socket.as_fd());
        descriptors::keep_alive(socket.as_fd());
        Peer { socket, reader: Reader::default(), out: Vec::new(), open: true }
    }

    /// What has come; closed afterwards if the other side is.
    fn read(&mut self, buffer: &mut [u8]) -> Vec<Frame> {
        match self.socket.read(buffer) {
            Ok(length @ 1..) => self.reader.take(&buffer[..length]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            _ => self.open = false,
        }
        self.reader.frames().unwrap_or_else(|_| {
            self.open = false;
            Vec::new()
        })
    }

    fn send(&mut self) {
        while !self.out.is_empty() && self.open {
            match self.socket.write(&self.out) {
                Ok(length @ 1..) => drop(self.out.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.open = false,
            }
        }
    }
}

/// Who comes in and has not said yet who it is.
struct Stranger {
    socket: Socket,
    said: Vec<u8>,
    since: Instant,
}

// ---- the helper ----

/// A replica that waits to hear that its text is out.
struct Wanted {
    replica: u8,
    kind: Kind,
    number: u64,
    /// Streams in which the marker has not come yet.
    missing: usize,
    until: Option<u64>,
}

/// Who wrote, for people.
#[derive(Clone)]
struct Author {
    native: u32,
    host: String,
    pid: u32,
}

struct Helper {
    setup: Setup,
    began: Instant,
    streams: Vec<Option<Local>>,
    votes: Vec<Option<Vote>>,
    tags: Vec<Tag>,
    writers: Vec<Writer>,
    wake: UnixStream,
    process: Option<OwnedFd>,
    listeners: Vec<OwnedFd>,
    local: bool,
    strangers: Vec<Stranger>,
    peers: Vec<Option<Peer>>,
    ended: Vec<[bool; 2]>,
    clean: Vec<[bool; 2]>,
    leader: Option<Peer>,
    authors: Vec<Option<Author>>,
    wanted: Vec<Wanted>,
    marks: u64,
    findings: Findings,
    told: Vec<(usize, u64)>,
    untold: u64,
}

impl Helper {
    fn new(setup: Setup, control: &UnixStream) -> Result<Helper, String> {
        let descriptors = setup.descriptors;
        let last = [descriptors.streams[0], descriptors.streams[1], descriptors.local_listener, descriptors.listener]
            .into_iter()
            .chain([descriptors.leader])
            .flatten()
            .max();
        descriptors::close_from(last.unwrap_or(CONTROL).max(CONTROL) + 1);
        let taken = |number: Option<i32>| match number {
            None => Ok(None),
            Some(number) => match descriptors::inherited(number) {
                Some(descriptor) => Ok(Some(descriptor)),
                None => Err(format!("descriptor {number} is missing")),
            },
        };
        let now = Instant::now();
        let mut streams = Vec::new();
        for number in descriptors.streams {
            let stream = taken(number)?;
            if let Some(stream) = &stream {
                descriptors::never_block(stream.as_fd()).map_err(|error| error.to_string())?;
            }
            streams.push(stream.map(|stream| Local {
                file: Some(File::from(stream)),
                parser: Parser::new(setup.secret),
                clean: false,
                last: now,
            }));
        }
        let local = taken(descriptors.local_listener)?;
        let has_local = local.is_some();
        let mut listeners = Vec::from_iter(local);
        listeners.extend(taken(descriptors.listener)?);
        for listener in &listeners {
            descriptors::never_block(listener.as_fd()).map_err(|error| error.to_string())?;
        }
        let leader = taken(descriptors.leader)?.map(|descriptor| Peer::new(Socket::of(descriptor)));
        let (wake, waker) = UnixStream::pair().map_err(|error| error.to_string())?;
        for end in [&wake, &waker, control] {
            let _ = end.set_read_timeout(None);
            end.set_nonblocking(true).map_err(|error| error.to_string())?;
        }
        let mut writers = Vec::new();
        for number in [1, 2] {
            writers.push(Writer::new(number, waker.try_clone().map_err(|error| error.to_string())?));
        }
        let degree = usize::from(setup.degree);
        let mut authors = vec![None; degree];
        authors[usize::from(setup.replica)] =
            Some(Author { native: setup.native, host: setup.host.clone(), pid: setup.pid });
        let mut votes: Vec<Option<Vote>> =
            streams.iter().map(|stream| stream.as_ref().map(|_| Vote::new(setup.degree, setup.delay_ms))).collect();
        for vote in votes.iter_mut().flatten() {
            for signature in signatures(&setup.host, setup.pid) {
                vote.signature(setup.replica, &signature);
            }
        }
        let tag = || Tag::new(setup.rank, setup.replica);
        Ok(Helper {
            began: now,
            votes,
            tags: vec![tag(), tag()],
            streams,
            writers,
            wake,
            process: descriptors::process(setup.pid),
            listeners,
            local: has_local,
            strangers: Vec::new(),
            peers: (0..degree).map(|_| None).collect(),
            ended: vec![[false; 2]; degree],
            clean: vec![[false; 2]; degree],
            leader,
            authors,
            wanted: Vec::new(),
            marks: 0,
            findings: Findings { suspected: vec![0; degree], ..Findings::default() },
            told: Vec::new(),
            untold: 0,
            setup,
        })
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn count_of_streams(&self) -> usize {
        self.streams.iter().flatten().count()
    }

    fn serve(&mut self, mut control: UnixStream) {
        let mut buffer = vec![0; 1 << 16];
        let mut process_gone: Option<Instant> = None;
        let mut writing_ended: Option<Instant> = None;
        let mut listening = true;
        loop {
            let full = self.writers.iter().any(|writer| writer.waiting() > ROOM)
                || self.leader.as_ref().is_some_and(|leader| leader.out.len() > ROOM);
            let mut polls = vec![Poll::new(self.wake.as_raw_fd(), true, false)];
            let ask = |polls: &mut Vec<Poll>, number: RawFd, read: bool, write: bool| {
                polls.push(Poll::new(number, read, write));
                Some(polls.len() - 1)
            };
            let streams: Vec<Option<usize>> = self
                .streams
                .iter()
                .map(|stream| {
                    let file = stream.as_ref()?.file.as_ref().filter(|_| !full)?;
                    ask(&mut polls, file.as_raw_fd(), true, false)
                })
                .collect();
            let peers: Vec<Option<usize>> = self
                .peers
                .iter()
                .map(|peer| {
                    let peer = peer.as_ref().filter(|peer| !full || !peer.out.is_empty())?;
                    ask(&mut polls, peer.socket.as_fd().as_raw_fd(), !full, !peer.out.is_empty())
                })
                .collect();
            let leader =
                self.leader.as_ref().filter(|leader| leader.open).and_then(|leader| {
                    ask(&mut polls, leader.socket.as_fd().as_raw_fd(), true, !leader.out.is_empty())
                });
            let process = match process_gone {
                None => {
                    let number = self.process.as_ref().map_or(control.as_raw_fd(), AsRawFd::as_raw_fd);
                    ask(&mut polls, number, self.process.is_some(), false)
                }
                Some(_) => None,
            };
            let word = ask(&mut polls, control.as_raw_fd(), true, false).filter(|_| listening);
            if !listening {
                polls.pop();
            }
            let first_listener = polls.len();
            for listener in &self.listeners {
                ask(&mut polls, listener.as_raw_fd(), true, false);
            }
            let first_stranger = polls.len();
            for stranger in &self.strangers {
                ask(&mut polls, stranger.socket.as_fd().as_raw_fd(), true, false);
            }
            let patience = self.patience(process_gone.is_some() || writing_ended.is_some());
            descriptors::wait(&mut polls, patience);

            let ready = |index: Option<usize>| index.is_some_and(|index| polls[index].readable());
            while self.wake.read(&mut buffer).is_ok_and(|length| length > 0) {}
            for (index, poll) in streams.into_iter().enumerate() {
                if ready(poll) {
                    self.read_stream(index, &mut buffer);
                }
            }
            for (index, poll) in peers.into_iter().enumerate() {
                if poll.is_some_and(|poll| polls[poll].readable()) && !full {
                    self.read_peer(index, &mut buffer);
                }
                if let Some(peer) = self.peers[index].as_mut() {
                    peer.send();
                }
            }
            if ready(leader) {
                self.read_leader(&mut control, &mut buffer);
            }
            if let Some(leader) = &mut self.leader {
                leader.send();
            }
            if process.is_some_and(|index| polls[index].readable() || polls[index].hung_up()) {
                process_gone = Some(Instant::now());
            }
            if ready(word) {
                // The one thing that can be said after the start is that nothing comes of it. A process that has closed
                // everything it did not know has not said that.
                match control.read(&mut buffer) {
                    Ok(1..) => break,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => listening = false,
                }
            }
            let strangers = polls[first_stranger..].iter().map(|poll| poll.readable()).collect();
            self.greet(strangers);
            for index in 0..self.listeners.len() {
                if polls[first_listener + index].readable() {
                    self.accept(index);
                }
            }

            self.step();
            self.answer(&mut control);
            if let Some(gone) = process_gone {
                self.give_up_silent(gone);
            }
            match self.setup.role {
                Role::Vote => {
                    let over =
                        self.votes.iter().flatten().all(Vote::is_over) && self.peers.iter().all(Option::is_none);
                    if over && self.writers.iter().all(|writer| writer.waiting() == 0) {
                        self.last_word();
                        break;
                    }
                }
                Role::Tag => {
                    let over = self.streams.iter().flatten().all(|stream| stream.file.is_none());
                    if over && self.writers.iter().all(|writer| writer.waiting() == 0) {
                        break;
                    }
                }
                Role::Follow => {
                    let over = self.streams.iter().flatten().all(|stream| stream.file.is_none());
                    let Some(leader) = &mut self.leader else { break };
                    if over && leader.out.is_empty() && writing_ended.is_none() {
                        // Not closed before the other side has read all: that would throw away what is on its way.
                        leader.socket.end_writing();
                        writing_ended = Some(Instant::now());
                    }
                    let gone = over && !leader.open;
                    if gone || writing_ended.is_some_and(|since| since.elapsed() > SILENCE) {
                        break;
                    }
                }
            }
        }
        // The process may wait for what is in the writers' hands.
        while self.writers.iter().any(|writer| writer.waiting() > 0) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Milliseconds to wait for something to happen.
    fn patience(&self, ending: bool) -> i32 {
        let now = self.now();
        let votes = self.votes.iter().flatten().filter(|_| self.setup.role == Role::Vote);
        let wanted = self.wanted.iter().filter_map(|wanted| wanted.until);
        let tags = self.tags.iter().filter_map(|tag| tag.deadline(self.setup.delay_ms));
        let soonest = votes.filter_map(|vote| vote.deadline(now)).chain(wanted).chain(tags).min();
        let limit = if ending || !self.strangers.is_empty() { 200 } else { i32::MAX as u64 };
        match soonest {
            Some(time) => time.saturating_sub(now).max(1).min(limit) as i32,
            None if limit == 200 => 200,
            None => -1,
        }
    }

    fn read_stream(&mut self, index: usize, buffer: &mut [u8]) {
        let mut events = Vec::new();
        if let Some(stream) = &mut self.streams[index] {
            stream.read(buffer, |event| events.push(event));
        }
        for event in events {
            self.local_event(index, event);
        }
    }

    fn local_event(&mut self, stream: usize, event: Event) {
        let now = self.now();
        match self.setup.role {
            Role::Vote => self.event(self.setup.replica, stream, event),
            Role::Follow => {
                if let Event::Mark(kind, number) = event {
                    self.want(self.setup.replica, kind, number);
                }
                let Some(leader) = self.leader.as_mut().filter(|leader| leader.open) else { return };
                let number = stream as u8;
                match event {
                    Event::Text(text) => Frame::Text(number, text).write(&mut leader.out),
                    Event::Mark(kind, mark) => Frame::Mark(number, kind, mark).write(&mut leader.out),
                    Event::End(_) => Frame::End(number).write(&mut leader.out),
                }
            }
            Role::Tag => match event {
                Event::Text(text) => self.tags[stream].text(&text, now),
                Event::Mark(kind, number) => {
                    self.tags[stream].flush();
                    self.want(self.setup.replica, kind, number);
                }
                Event::End(_) => self.tags[stream].flush(),
            },
        }
    }

    /// Something has happened in a stream of a replica; only the leader's helper gets here.
    fn event(&mut self, replica: u8, stream: usize, event: Event) {
        let now = self.now();
        let Some(vote) = self.votes.get_mut(stream).and_then(Option::as_mut) else { return };
        match event {
            Event::Text(text) => vote.text(replica, &text, now),
            Event::Mark(kind, number) => {
                vote.mark(replica, number << 8 | u64::from(kind.code()), now);
                if kind == Kind::Exit {
                    self.clean[usize::from(replica)][stream] = true;
                }
                self.want(replica, kind, number);
            }
            Event::End(clean) => {
                vote.end(replica, clean, now);
                self.ended[usize::from(replica)][stream] = true;
            }
        }
    }

    fn want(&mut self, replica: u8, kind: Kind, number: u64) {
        let streams = self.count_of_streams();
        let now = self.now();
        let known = |wanted: &&mut Wanted| wanted.replica == replica && wanted.number == number;
        let wanted = match self.wanted.iter_mut().find(known) {
            Some(wanted) => wanted,
            None => {
                self.wanted.push(Wanted { replica, kind, number, missing: streams, until: None });
                let Some(wanted) = self.wanted.last_mut() else { return };
                wanted
            }
        };
        wanted.missing = wanted.missing.saturating_sub(1);
        if wanted.missing == 0 {
            if kind != Kind::Compare {
                wanted.until = Some(now + self.setup.delay_ms + 500);
            } else if replica == self.setup.replica {
                self.marks += 1;
            }
        }
    }

    fn read_peer(&mut self, index: usize, buffer: &mut [u8]) {
        let Some(peer) = &mut self.peers[index] else { return };
        let frames = peer.read(buffer);
        let open = peer.open;
        let replica = index as u8;
        for frame in frames {
            match frame {
                Frame::Text(stream, text) => self.event(replica, usize::from(stream), Event::Text(text)),
                Frame::Mark(stream, kind, number) => {
                    self.event(replica, usize::from(stream), Event::Mark(kind, number));
                }
                Frame::End(stream) => {
                    let clean = self.clean[index][usize::from(stream)];
                    self.event(replica, usize::from(stream), Event::End(clean));
                }
                Frame::Out(_) => {}
            }
        }
        if !open {
            self.peers[index] = None;
            for stream in 0..2 {
                if !self.ended[index][stream] {
                    self.event(replica, stream, Event::End(false));
                }
            }
        }
    }

    fn read_leader(&mut self, control: &mut UnixStream, buffer: &mut [u8]) {
        let Some(leader) = &mut self.leader else { return };
        for frame in leader.read(buffer) {
            if let Frame::Out(number) = frame {
                self.wanted.retain(|wanted| wanted.number != number);
                answer(control, &Answer::Out(number));
            }
        }
        if !leader.open {
            leader.out.clear();
        }
    }

    fn accept(&mut self, index: usize) {
        let Ok(listener) = self.listeners[index].try_clone() else { return };
        let socket = if index == 0 && self.local {
            UnixListener::from(listener).accept().map(|(socket, _)| Socket::Unix(socket))
        } else {
            TcpListener::from(listener).accept().map(|(socket, _)| Socket::Tcp(socket))
        };
        let Ok(socket) = socket else { return };
        if self.strangers.len() < STRANGERS && descriptors::never_block(socket.as_fd()).is_ok() {
            self.strangers.push(Stranger { socket, said: Vec::new(), since: Instant::now() });
        }
    }

    /// Hears who those are that have come in; whoever does not know the password is shown the door.
    fn greet(&mut self, ready: Vec<bool>) {
        let strangers = std::mem::take(&mut self.strangers);
        for (index, mut stranger) in strangers.into_iter().enumerate() {
            let mut buffer = [0; 1024];
            if ready.get(index).copied().unwrap_or(false) {
                match stranger.socket.read(&mut buffer) {
                    Ok(length @ 1..) => stranger.said.extend_from_slice(&buffer[..length]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => continue,
                }
            }
            let Some(end) = stranger.said.iter().position(|byte| *byte == b'\n') else {
                if stranger.said.len() <= 2048 && stranger.since.elapsed() < GREETING {
                    self.strangers.push(stranger);
                }
                continue;
            };
            let Ok(greeting) = serde_json::from_slice::<Greeting>(&stranger.said[..end]) else { continue };
            let place = usize::from(greeting.replica);
            let known = greeting.password[..] == self.setup.password[..16];
            let free = greeting.replica != self.setup.replica && self.peers.get(place).is_some_and(Option::is_none);
            // Nothing more may come before the answer.
            if !known || !free || stranger.said.len() != end + 1 {
                continue;
            }
            for vote in self.votes.iter_mut().flatten() {
                for signature in signatures(&greeting.host, greeting.pid) {
                    vote.signature(greeting.replica, &signature);
                }
            }
            self.authors[place] = Some(Author { native: greeting.native, host: greeting.host, pid: greeting.pid });
            let mut peer = Peer::new(stranger.socket);
            peer.out.extend_from_slice(&self.setup.password[16..]);
            peer.send();
            self.peers[place] = Some(peer);
        }
        let missing = self.authors.iter().any(Option::is_none);
        if !missing && !self.listeners.is_empty() {
            self.listeners.clear();
            self.strangers.clear();
        }
    }

    fn step(&mut self) {
        let now = self.now();
        match self.setup.role {
            Role::Follow => {}
            Role::Tag => {
                for (tag, writer) in self.tags.iter_mut().zip(&self.writers) {
                    tag.step(now, self.setup.delay_ms);
                    writer.push(std::mem::take(&mut tag.out));
                }
            }
            Role::Vote => {
                for stream in 0..self.votes.len() {
                    let Some(vote) = &mut self.votes[stream] else { continue };
                    vote.step(now);
                    let output = vote.take_output();
                    let dissents = vote.take_dissents();
                    self.findings.bytes += output.len() as u64;
                    self.writers[stream].push(output);
                    for dissent in dissents {
                        self.dissent(stream, &dissent);
                    }
                }
            }
        }
    }

    fn answer(&mut self, control: &mut UnixStream) {
        if self.wanted.is_empty() {
            return;
        }
        let idle = self.writers.iter().all(|writer| writer.waiting() == 0);
        let now = self.now();
        let lost = self.setup.role == Role::Follow && self.leader.as_ref().is_none_or(|leader| !leader.open);
        let mut index = 0;
        while index < self.wanted.len() {
            let Wanted { replica, kind, number, missing, until } = self.wanted[index];
            let mine = replica == self.setup.replica;
            let votes = || self.votes.iter().flatten();
            let out = missing == 0
                && match (self.setup.role, kind) {
                    (Role::Follow, _) => lost,
                    (Role::Tag, _) => idle,
                    (Role::Vote, Kind::Compare) if mine => idle && votes().all(|vote| vote.compared(self.marks)),
                    (Role::Vote, Kind::Compare) => true,
                    (Role::Vote, _) => idle && votes().all(|vote| vote.is_used_up(replica)),
                };
            if !out && until.is_none_or(|until| now < until) {
                index += 1;
                continue;
            }
            self.wanted.remove(index);
            if !mine {
                if let Some(peer) = self.peers[usize::from(replica)].as_mut().filter(|_| kind != Kind::Compare) {
                    Frame::Out(number).write(&mut peer.out);
                    peer.send();
                }
            } else if self.setup.role == Role::Vote && kind == Kind::Compare {
                let empty = Findings { suspected: vec![0; self.authors.len()], ..Findings::default() };
                let findings = std::mem::replace(&mut self.findings, empty);
                self.untold = 0;
                answer(control, &Answer::Compared(number, findings));
            } else {
                answer(control, &Answer::Out(number));
            }
        }
    }

    /// The process is gone, and somebody else (a child of its own) may hold its streams open for ever.
    fn give_up_silent(&mut self, gone: Instant) {
        for index in 0..self.streams.len() {
            let Some(stream) = &mut self.streams[index] else { continue };
            if stream.file.is_some() && gone.elapsed() > SILENCE && stream.last.elapsed() > SILENCE {
                stream.file = None;
                let clean = stream.clean;
                self.local_event(index, Event::End(clean));
            }
        }
        // Who has not come by now was ended before it could.
        if self.setup.role == Role::Vote && !self.listeners.is_empty() && gone.elapsed() > GREETING {
            self.listeners.clear();
            self.strangers.clear();
            for replica in
                (0..self.authors.len()).filter(|replica| self.authors[*replica].is_none()).collect::<Vec<_>>()
            {
                for stream in 0..2 {
                    self.event(replica as u8, stream, Event::End(false));
                }
            }
        }
    }

    // ---- what was found ----

    fn author(&self, replica: usize) -> String {
        match self.authors.get(replica) {
            Some(Some(author)) => {
                format!("replica {replica} (native {}, {}, pid {})", author.native, author.host, author.pid)
            }
            _ => format!("replica {replica}"),
        }
    }

    fn dissent(&mut self, stream: usize, dissent: &Dissent) {
        let place = format!("{} line {}", self.stream_name(stream), dissent.line);
        let suspects: Vec<usize> = (0..64).filter(|index| dissent.suspects >> index & 1 == 1).collect();
        self.findings.mismatched += dissent.count;
        if dissent.corrected {
            self.findings.corrected += dissent.count;
        }
        for suspect in &suspects {
            if let Some(count) = self.findings.suspected.get_mut(*suspect) {
                *count += 1;
            }
        }
        if self.findings.events.len() < Findings::EVENTS {
            self.findings.events.push(Found {
                replicas: suspects.iter().map(|suspect| *suspect as u8).collect(),
                place: place.clone(),
                bytes: dissent.length as u64,
                corrected: dissent.corrected,
                time_s: self.began.elapsed().as_secs_f64(),
            });
        }
        self.untold += dissent.count;
        // Once for each stream and suspect; the verdict has the count.
        let key = (stream, dissent.suspects);
        if self.told.contains(&key) {
            return;
        }
        self.told.push(key);
        self.untold -= dissent.count;
        let names: Vec<String> = suspects.iter().map(|suspect| self.author(*suspect)).collect();
        let who = match names.len() {
            0 => String::from("the beginning of the line was wrong"),
            1 => format!("{} differs from the others", names[0]),
            _ => format!("{} differ", names.join(" and ")),
        };
        let quoted = |text: &Option<Box<[u8]>>| text.as_ref().map(|text| shown(text));
        let how = match (quoted(&dissent.shown), quoted(&dissent.other)) {
            (Some(shown), Some(other)) => format!("shown is {shown}, and not {other}"),
            (Some(shown), None) => format!("shown is {shown}"),
            (None, Some(other)) => format!("not shown is {other}"),
            (None, None) => String::from("a line is missing"),
        };
        let trust = if dissent.corrected { "" } else { "; which is right cannot be told" };
        self.say(&format!("rank {}, {place}: {who}: {how}{trust}", self.setup.rank));
    }

    fn stream_name(&self, stream: usize) -> &'static str {
        if self.setup.merged {
            "stdout and stderr"
        } else {
            STREAMS[stream]
        }
    }

    fn say(&self, text: &str) {
        self.writers[1].push(format!("redmpi: {text}\n").into_bytes());
    }

    /// What was found after MPI_Finalize, or in a job that did not get there.
    fn last_word(&mut self) {
        if self.untold > 0 {
            let (rank, more) = (self.setup.rank, self.untold);
            self.say(&format!("rank {rank}: {more} more lines of output differ that no verdict has counted"));
        }
        if self.votes.iter().flatten().any(|vote| vote.lost() > 0) {
            self.say(&format!(
                "rank {}: a replica was too many lines away from the others; its further output was not compared",
                self.setup.rank
            ));
        }
    }
}

/// How Open MPI begins its own lines, which differ between replicas by nature.
fn signatures(host: &str, pid: u32) -> Vec<Vec<u8>> {
    let mut names = vec![host, host.split('.').next().unwrap_or(host)];
    names.dedup();
    names.iter().map(|name| format!("[{name}:{pid:05}]").into_bytes()).collect()
}

/// Bytes for people, in quotes.
fn shown(text: &[u8]) -> String {
    format!("\"{}\"", text.strip_suffix(b"\n").unwrap_or(text).escape_ascii())
}

// ---- tag ----

/// Lines with their process's place in front.
#[derive(Clone)]
struct Tag {
    place: String,
    line: Vec<u8>,
    since: u64,
    begun: bool,
    out: Vec<u8>,
}

impl Tag {
    fn new(rank: u32, replica: u8) -> Tag {
        Tag { place: format!("[{rank}.{replica}] "), line: Vec::new(), since: 0, begun: false, out: Vec::new() }
    }

    fn text(&mut self, text: &[u8], now: u64) {
        for part in text.split_inclusive(|byte| *byte == b'\n') {
            if self.line.is_empty() {
                self.since = now;
            }
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") || self.line.len() > 4096 {
                self.flush();
            }
        }
    }

    fn flush(&mut self) {
        if self.line.is_empty() {
            return;
        }
        if !self.begun {
            self.out.extend_from_slice(self.place.as_bytes());
        }
        self.begun = !self.line.ends_with(b"\n");
        self.out.append(&mut self.line);
    }

    fn step(&mut self, now: u64, delay: u64) {
        if self.deadline(delay).is_some_and(|time| now >= time) {
            self.flush();
        }
    }

    fn deadline(&self, delay: u64) -> Option<u64> {
        (!self.line.is_empty()).then_some(self.since + delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_its_place_once() {
        let mut tag = Tag::new(3, 1);
        tag.text(b"one\ntw", 0);
        tag.step(10, 50);
        assert_eq!(tag.out, b"[3.1] one\n");
        tag.step(50, 50);
        tag.text(b"o\n\nend", 60);
        tag.flush();
        assert_eq!(String::from_utf8(tag.out).unwrap(), "[3.1] one\n[3.1] two\n[3.1] \n[3.1] end");
    }

    #[test]
    fn open_mpis_own_lines_are_known() {
        assert_eq!(signatures("vm.a.org", 42), [b"[vm.a.org:00042]".to_vec(), b"[vm:00042]".to_vec()]);
        assert_eq!(signatures("vm", 123456), [b"[vm:123456]".to_vec()]);
    }
}
