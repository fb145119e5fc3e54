//! Every kernel against what this machine can do: `cargo bench -p russet-kernels [WORD]` (with a word: the rows that have it).
//!
//! First the limits are measured: multiply-adds of f32, of words and of bytes in registers, and reading from memory. Then each kernel runs
//! for a while, and its best time counts. A row says how many bytes of weights (or of a cache) and how many multiply-adds that was a
//! second, and the larger of the two shares of the limits: of reading where a kernel waits for memory, of the multiply-adds that it is
//! made of where it computes.

#![allow(clippy::disallowed_macros, reason = "it prints its table")]

mod limits;
mod weights;

use std::hint::black_box;
use std::time::{Duration, Instant};

use half::f16;
use russet_kernels::attention::{Attention, Heads, HeadsMut, attention};
use russet_kernels::elementwise::{Activation, gated};
use russet_kernels::isa::Isa;
use russet_kernels::norm::{Norm, rms_norm};
use russet_kernels::rope::RowsOf;
use russet_kernels::threads::Pool;

use limits::{Limits, Unit};

/// How long a kernel is repeated.
const TIME: Duration = Duration::from_millis(120);

fn main() {
    let word = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .unwrap_or_default();
    println!("{}", Isa::best().name());
    for threads in [1, 2] {
        let bench = Bench {
            pool: Pool::new(threads),
            limits: Limits::measure(threads),
            word: word.clone(),
        };
        println!("\n{threads} threads: {}\n", bench.limits);
        println!(
            "{:34} {:>10} {:>8} {:>8} {:>6}",
            "kernel", "time", "GB/s", "GMAC/s", "limit"
        );
        weights::all(&bench);
        attentions(&bench);
        if threads == 1 {
            rest(&bench);
        }
    }
}

/// One table.
pub(crate) struct Bench {
    pub(crate) pool: Pool,
    limits: Limits,
    word: String,
}

/// What a call does.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) bytes: usize,
    pub(crate) products: usize,
    pub(crate) unit: Unit,
}

impl Bench {
    /// Whether a row is asked for: making its operands takes longer than the kernel.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.word)
    }

    /// Repeats a call and prints its row.
    pub(crate) fn row(&self, name: &str, work: Work, mut call: impl FnMut()) {
        if !self.wants(name) {
            return;
        }
        let seconds = best(&mut call);
        let (bytes, products) = (
            work.bytes as f64 / seconds / 1e9,
            work.products as f64 / seconds / 1e9,
        );
        let share = self.limits.share(bytes, products, work.unit);
        let micros = seconds * 1e6;
        println!("{name:34} {micros:>7.1} us {bytes:>8.1} {products:>8.1} {share:>5.0}%");
    }
}

/// The best time of a call, in seconds.
pub(crate) fn best(call: &mut impl FnMut()) -> f64 {
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    let mut runs = 0;
    while runs < 3 || start.elapsed() < TIME {
        let one = Instant::now();
        call();
        best = best.min(one.elapsed().as_secs_f64());
        runs += 1;
    }
    best
}

/// Some halves between -1 and 1.
pub(crate) fn numbers(n: usize) -> Vec<f16> {
    let some: Vec<f16> = (0..1000)
        .map(|i| f16::from_f32(((i * 7919) % 1000) as f32 * 0.002 - 1.0))
        .collect();
    some.iter().copied().cycle().take(n).collect()
}

/// One query behind contexts, and prompts: 9 heads over 3 of width 64.
fn attentions(bench: &Bench) {
    for (m, s) in [(1, 512), (1, 2048), (512, 512)] {
        let (d, heads, kv_heads) = (64, 9, 3);
        let cache = numbers(kv_heads * s * d);
        let (q, mut out) = (numbers(heads * m * d), vec![f16::ZERO; heads * m * d]);
        let heads_of = |data, rows: usize| Heads {
            data,
            head_stride: rows * d,
            row_stride: d,
        };
        let a = Attention {
            q: heads_of(&q[..], m),
            k: heads_of(&cache[..], s),
            v: heads_of(&cache[..], s),
            heads,
            kv_heads,
            m,
            s,
            d,
            dv: d,
            scale: 0.125,
            causal: true,
            window: None,
            mask: None,
            sinks: None,
            exact: false,
        };
        let pairs = heads * (m * s - m * (m - 1) / 2);
        let work = Work {
            bytes: 2 * 2 * kv_heads * s * d,
            products: 2 * pairs * d,
            unit: if m == 1 { Unit::F32 } else { Unit::Words },
        };
        bench.row(&format!("attention {m} x {s}"), work, || {
            let place = HeadsMut {
                data: &mut out,
                head_stride: m * d,
                row_stride: d,
            };
            attention(&bench.pool, black_box(&a), place);
        });
    }
}

/// What is between products; bytes are those read and written.
fn rest(bench: &Bench) {
    let (x, other, mut y) = (numbers(1536), numbers(1536), numbers(1536));
    let work = |bytes, products| Work {
        bytes,
        products,
        unit: Unit::F32,
    };
    bench.row("norm 1536", work(6 * 1536, 2 * 1536), || {
        let x = RowsOf {
            data: &x,
            stride: 1536,
            width: 1536,
        };
        let norm = Norm {
            x,
            scale: &other,
            eps: 1e-5,
            in_order: false,
            add: None,
        };
        rms_norm(&bench.pool, black_box(&norm), &mut y);
    });
    bench.row("silu_mul 1536", work(6 * 1536, 0), || {
        gated(Activation::Silu, black_box(&x), &other, &mut y);
    });
    bench.row("pool, nothing to do", work(0, 0), || {
        bench.pool.run(2, &|i| {
            black_box(i);
        });
    });
}
