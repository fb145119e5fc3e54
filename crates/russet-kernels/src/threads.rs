//! A pool for work that lasts microseconds: workers spin briefly between runs, then park; a run allocates nothing.
//!
//! One word, [`Shared::state`], tells everything: a run number, how many workers are inside the run, and whether the
//! run is open. The caller writes the job while the run is closed and empty, opens it, works too, closes it, and waits
//! for those inside. A worker that is asleep is never waited for, so a pool larger than the machine does not stall.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long an idle worker spins before it parks.
const SPIN: Duration = Duration::from_micros(50);
/// The state word's layout: bit 0 open, then workers inside, then the run number.
const OPEN: u64 = 1;
const ONE_INSIDE: u64 = 2;
const INSIDE: u64 = 0xffff_fffe;
const ONE_RUN: u64 = 1 << 32;
/// The state that tells workers to end: no run number gets there.
const QUIT: u64 = u64::MAX;

thread_local! {
    /// Whether this thread is inside a run: a nested run is then done inline.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// The function of a run, its lifetime erased. Valid while the run is open or has workers inside.
#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

struct Shared {
    state: AtomicU64,
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the thread that holds the run lock while the run is closed and empty, and read only
// by threads inside a run; opening (Release) and entering (Acquire) order the two. The pointer inside is to a `Sync`
// function, called only while the caller of `Pool::run` is waiting.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in `Shared` belongs to one thread.
unsafe impl Send for Shared {}

struct Worker {
    parked: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

/// Threads that share index-parallel work with their caller.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    running: Mutex<()>,
}

impl Pool {
    /// A pool of `threads` threads, the caller of [`Pool::run`] being one; 0 means one per available core.
    /// Where the system refuses to start a thread the pool is smaller; more than four per core (or 64) only wait for each other
    /// and are not started.
    pub fn new(threads: usize) -> Self {
        let threads = if threads == 0 {
            crate::machine::cpus()
        } else {
            threads
        };
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        let most = 64.max(4 * crate::machine::cpus());
        let workers = (1..threads.min(most))
            .map_while(|i| spawn(i, &shared))
            .collect();
        Self {
            shared,
            workers,
            running: Mutex::new(()),
        }
    }

    /// Threads that work in a run, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` once for each i below `tasks`, on all threads, in no order; returns when all are done.
    /// Inside a task it runs inline. A panic in a task is raised here after all have ended.
    pub fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() || BUSY.get() {
            return (0..tasks).for_each(task);
        }
        let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        self.open(tasks, task);
        self.wake(tasks - 1);
        self.shared.work();
        self.shared.close();
        let panic = self
            .shared
            .panic
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Cuts `out` into chunks of `chunk` elements (the last may be shorter) and calls `f(index, chunk)` for each.
    pub fn for_chunks_mut<T: Send>(
        &self,
        out: &mut [T],
        chunk: usize,
        f: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let chunk = chunk.max(1);
        let rows = Rows::new(out, chunk);
        self.run(rows.count(), &|i| {
            // SAFETY: the pool gives each index to one task, so no two tasks hold the same chunk.
            f(i, unsafe { rows.row(i) });
        });
    }

    /// As [`Pool::for_chunks_mut`] over two slices at once; as many calls as the one with fewer chunks has.
    pub fn for_chunks_mut2<A: Send, B: Send>(
        &self,
        (a, chunk_a): (&mut [A], usize),
        (b, chunk_b): (&mut [B], usize),
        f: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        let (a, b) = (Rows::new(a, chunk_a.max(1)), Rows::new(b, chunk_b.max(1)));
        self.run(a.count().min(b.count()), &|i| {
            // SAFETY: the pool gives each index to one task, so no two tasks hold the same chunks.
            unsafe { f(i, a.row(i), b.row(i)) }
        });
    }

    fn open(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let task: *const (dyn Fn(usize) + Sync + '_) = task;
        // SAFETY: only the lifetime changes. The pointer is used only by threads inside this run, and `run` does not
        // return (nor unwind: `work` catches) before `close` has seen the last of them leave.
        let task: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(task) };
        // SAFETY: the run is closed and empty, and the run lock is held: no other thread touches `job`.
        unsafe { *self.shared.job.get() = Some(Job { task, tasks }) };
        self.shared.next.store(0, Relaxed);
        let run = (self.shared.state.load(Relaxed) >> 32).wrapping_add(1) & 0x7fff_ffff;
        self.shared.state.store((run * ONE_RUN) | OPEN, SeqCst);
    }

    /// Unparks at most `count` parked workers.
    fn wake(&self, count: usize) {
        let parked = self
            .workers
            .iter()
            .filter(|w| w.parked.load(SeqCst) && w.parked.swap(false, SeqCst));
        parked.take(count).for_each(|w| w.handle.thread().unpark());
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.store(QUIT, SeqCst);
        for worker in self.workers.drain(..) {
            worker.handle.thread().unpark();
            let _ = worker.handle.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} threads)", self.threads())
    }
}

fn spawn(index: usize, shared: &Arc<Shared>) -> Option<Worker> {
    let parked = Arc::new(AtomicBool::new(false));
    let (shared, flag) = (shared.clone(), parked.clone());
    let builder = thread::Builder::new().name(format!("russet-{index}"));
    let handle = builder.spawn(move || shared.serve(&flag)).ok()?;
    Some(Worker { parked, handle })
}

impl Shared {
    /// A worker's life: wait for a run it has not seen, enter it, work, leave.
    fn serve(&self, parked: &AtomicBool) {
        let mut seen = 0;
        loop {
            let state = self.wait(seen, parked);
            if state == QUIT {
                return;
            }
            seen = state >> 32;
            if self.enter(state) {
                self.work();
                self.state.fetch_sub(ONE_INSIDE, Release);
            }
        }
    }

    /// Spins, then parks, until a run other than `seen` is open.
    fn wait(&self, seen: u64, parked: &AtomicBool) -> u64 {
        let fresh = |state: u64| state & OPEN != 0 && state >> 32 != seen;
        loop {
            let start = Instant::now();
            while start.elapsed() < SPIN {
                for _ in 0..64 {
                    let state = self.state.load(Acquire);
                    if fresh(state) {
                        return state;
                    }
                    std::hint::spin_loop();
                }
                // Not at once: where other programs want the core, a yield lasts longer than the gap between runs.
                if start.elapsed() > SPIN / 2 {
                    thread::yield_now();
                }
            }
            parked.store(true, SeqCst);
            // A run opened before the flag was up would not unpark: look once more.
            while !fresh(self.state.load(SeqCst)) && parked.load(SeqCst) {
                thread::park();
            }
            parked.store(false, SeqCst);
        }
    }

    /// Joins the run of `state`, unless it closed meanwhile.
    fn enter(&self, mut state: u64) -> bool {
        let run = state >> 32;
        while state & OPEN != 0 && state >> 32 == run && state != QUIT {
            match self
                .state
                .compare_exchange_weak(state, state + ONE_INSIDE, AcqRel, Acquire)
            {
                Ok(_) => return true,
                Err(now) => state = now,
            }
        }
        false
    }

    /// Takes tasks until there are none; keeps the first panic.
    fn work(&self) {
        // SAFETY: called by the run's caller, or inside the run: `job` is not written now.
        let Some(job) = (unsafe { *self.job.get() }) else {
            return;
        };
        BUSY.set(true);
        let done = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let i = self.next.fetch_add(1, Relaxed);
                if i >= job.tasks {
                    return;
                }
                // SAFETY: the run is open or has this thread inside, so its caller still waits and `task` lives.
                unsafe { (*job.task)(i) };
            }
        }));
        BUSY.set(false);
        if let Err(panic) = done {
            self.next.store(job.tasks, Relaxed);
            self.panic
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(panic);
        }
    }

    /// Lets nobody else in and waits for those inside to leave.
    fn close(&self) {
        self.state.fetch_and(!OPEN, AcqRel);
        let mut spins = 0_u32;
        while self.state.load(Acquire) & INSIDE != 0 {
            spins += 1;
            if spins.is_multiple_of(128) {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// A mutable slice as rows that different tasks may hold at once.
pub(crate) struct Rows<'a, T> {
    start: *mut T,
    len: usize,
    width: usize,
    _borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: `Rows` stands for an exclusive borrow of `[T]`; its methods hand out parts of it, and their contract is that
// no two live parts overlap, so sharing it moves at most `T`s between threads.
unsafe impl<T: Send> Sync for Rows<'_, T> {}

impl<'a, T> Rows<'a, T> {
    pub(crate) fn new(slice: &'a mut [T], width: usize) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            width,
            _borrow: std::marker::PhantomData,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.len.div_ceil(self.width)
    }

    /// Row `i`; the last may be short.
    ///
    /// # Safety
    /// No other live part of these rows overlaps it.
    #[allow(
        clippy::mut_from_ref,
        reason = "disjoint parts of one exclusive borrow, as the contract says"
    )]
    pub(crate) unsafe fn row(&self, i: usize) -> &mut [T] {
        let from = i * self.width;
        // SAFETY: the caller's promise.
        unsafe { self.part(from, self.width.min(self.len.saturating_sub(from))) }
    }

    /// Elements `from..from + len`.
    ///
    /// # Safety
    /// No other live part of these rows overlaps it.
    #[allow(
        clippy::mut_from_ref,
        reason = "disjoint parts of one exclusive borrow, as the contract says"
    )]
    #[inline(always)]
    pub(crate) unsafe fn part(&self, from: usize, len: usize) -> &mut [T] {
        assert!(
            from <= self.len && len <= self.len - from,
            "part inside the slice"
        );
        // SAFETY: inside the borrowed slice (checked), and disjoint from other parts (the caller's promise).
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of(pool: &Pool, tasks: usize) -> usize {
        let sum = AtomicUsize::new(0);
        pool.run(tasks, &|i| {
            sum.fetch_add(i + 1, Relaxed);
        });
        sum.into_inner()
    }

    #[test]
    fn every_task_runs_once_at_any_size() {
        for threads in [1, 2, 3, 16, 64] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 7, 1000] {
                assert_eq!(sum_of(&pool, tasks), tasks * (tasks + 1) / 2);
            }
        }
    }

    #[test]
    fn oversubscribed_pools_do_not_collapse() {
        let pool = Pool::new(4 * thread::available_parallelism().map_or(1, usize::from));
        let start = Instant::now();
        for _ in 0..2000 {
            assert_eq!(sum_of(&pool, 8), 36);
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
    }

    /// Runs `f` on a thread that may use this many of the CPUs that the process may use, as may the threads it starts.
    #[cfg(target_os = "linux")]
    fn on_cpus<T: Send>(count: usize, f: impl FnOnce() -> T + Send) -> T {
        const WORDS: usize = 16;
        unsafe extern "C" {
            fn sched_getaffinity(pid: i32, size: usize, mask: *mut u64) -> i32;
            fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
        }
        let restrict = move || {
            let mut mask = [0_u64; WORDS];
            let size = size_of_val(&mask);
            // SAFETY: the mask has `size` bytes; thread 0 is the calling one.
            assert!(unsafe { sched_getaffinity(0, size, mask.as_mut_ptr()) } >= 0);
            let mut left = count;
            for bit in 0..64 * WORDS {
                let (word, bit) = (bit / 64, 1 << (bit % 64));
                if mask[word] & bit != 0 {
                    match left.checked_sub(1) {
                        Some(fewer) => left = fewer,
                        None => mask[word] &= !bit,
                    }
                }
            }
            // SAFETY: as above.
            assert_eq!(unsafe { sched_setaffinity(0, size, mask.as_ptr()) }, 0);
        };
        thread::scope(|scope| {
            let run = scope.spawn(move || {
                restrict();
                f()
            });
            run.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// The time of steps of a few hundred microseconds, shared by this many threads: the best of three tries.
    #[cfg(target_os = "linux")]
    fn time_of_steps(threads: usize) -> Duration {
        const TASKS: usize = 16;
        let pool = Pool::new(threads);
        let work = |i: usize| {
            let mut x = i as u64;
            (0..4000).for_each(|_| x = std::hint::black_box(x.wrapping_mul(0x9e37_79b9) ^ x >> 7));
        };
        let once = || {
            let start = Instant::now();
            (0..300).for_each(|_| pool.run(TASKS, &work));
            start.elapsed()
        };
        (0..3).map(|_| once()).min().unwrap_or_default()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn more_threads_than_cpus_cost_little() {
        for cpus in [1, 2] {
            let (alone, crowded) = on_cpus(cpus, || (time_of_steps(cpus), time_of_steps(8)));
            // A quiet machine shows hardly any difference, a pool that waits for sleeping threads a hundredfold one.
            assert!(crowded < 10 * alone, "{cpus} CPUs: {alone:?}, {crowded:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_pool_has_as_many_threads_as_the_process_may_use() {
        let threads = on_cpus(1, || Pool::new(0).threads());
        assert_eq!(threads, 1);
        assert_eq!(Pool::new(0).threads(), crate::machine::cpus());
    }

    #[test]
    fn works_after_workers_have_parked() {
        let pool = Pool::new(3);
        for _ in 0..5 {
            thread::sleep(Duration::from_millis(2));
            assert_eq!(sum_of(&pool, 100), 5050);
        }
    }

    #[test]
    fn nested_runs_are_inline() {
        let pool = Pool::new(4);
        let total = AtomicUsize::new(0);
        pool.run(8, &|_| {
            let id = thread::current().id();
            pool.run(5, &|i| {
                assert_eq!(thread::current().id(), id);
                total.fetch_add(i, Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 80);
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::new(3);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| assert_eq!(sum_of(&pool, 10), 55)));
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(4);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.run(50, &|i| assert!(i != 13, "unlucky"));
        }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"unlucky"));
        assert_eq!(sum_of(&pool, 10), 55);
    }

    #[test]
    fn chunks_cover_the_slice() {
        let pool = Pool::new(4);
        let (mut a, mut b) = (vec![0; 103], vec![0; 21]);
        pool.for_chunks_mut(&mut a, 10, &|i, chunk| chunk.fill(i));
        assert!(a.iter().enumerate().all(|(i, v)| *v == i / 10));
        pool.for_chunks_mut2((&mut a, 10), (&mut b, 2), |i, a, b| {
            a.fill(i + 1);
            b.fill(a.len());
        });
        assert_eq!((a[102], b[20], b[0]), (11, 3, 10));
    }
}
