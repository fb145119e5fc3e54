//! The kernels a token passes through, at the sizes of a 135M-parameter llama: run with `cargo bench -p russet-kernels`.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use half::f16;
use russet_kernels::attention::{Attention, Heads, HeadsMut, attention};
use russet_kernels::elem::Rounding;
use russet_kernels::elementwise::{Activation, Unary, gated, unary};
use russet_kernels::linear::linear;
use russet_kernels::norm::{Norm, rms_norm};
use russet_kernels::packed::{Bits, BlockSource, PackedRows, Product, packed_linear};
use russet_kernels::quant::{BlockRows, Code, DenseRows, Floats};
use russet_kernels::rope::RowsOf;
use russet_kernels::threads::Pool;

fn main() {
    divan::main();
}

const THREADS: [usize; 2] = [1, 2];
/// (n, k) of the fused q/k/v, gate, down projections and of the vocabulary.
const SHAPES: [(usize, usize); 4] = [(960, 576), (1536, 576), (576, 1536), (49_152, 576)];

fn numbers(n: usize) -> Vec<f16> {
    (0..n)
        .map(|i| f16::from_f32(((i * 7919) % 1000) as f32 * 0.002 - 1.0))
        .collect()
}

/// Times y = x W^T with 4-bit blocks of 32; items are multiply-adds.
fn four_bit(bencher: Bencher<'_, '_>, m: usize, (rows, k): (usize, usize), threads: usize) {
    let pool = Pool::new(threads);
    let data: Vec<u8> = (0..rows * k / 2).map(|i| (i * 31) as u8).collect();
    let scales = numbers(rows * k / 32);
    let (code, rounding, scales) = (Code::I4, Rounding::F16, Floats::F16(&scales));
    let w = BlockRows {
        data: &data,
        code,
        rows,
        k,
        block: 32,
        scales,
        zeros: None,
        shifts: None,
        rounding,
    };
    let (x, mut y) = (numbers(m * k), vec![f16::ZERO; m * rows]);
    let bencher = bencher
        .counter(ItemsCount::new(m * rows * k))
        .counter(BytesCount::new(rows * k * 9 / 16));
    bencher.bench_local(|| linear(&pool, black_box(&x), &w, &mut y, m));
}

/// The same weights, packed for integer products.
struct Codes {
    data: Vec<u8>,
    rows: usize,
    k: usize,
}

impl BlockSource for Codes {
    fn rows(&self) -> usize {
        self.rows
    }
    fn k(&self) -> usize {
        self.k
    }
    fn bits(&self) -> Bits {
        Bits::Four
    }
    fn zero(&self) -> i32 {
        8
    }
    fn has_offsets(&self) -> bool {
        false
    }
    fn half_scales(&self) -> bool {
        true
    }
    fn block(&self, row: usize, block: usize, codes: &mut [u8; 32]) -> (f32, f32) {
        let bytes = &self.data[(row * self.k + block * 32) / 2..][..16];
        for (pair, byte) in codes.chunks_exact_mut(2).zip(bytes) {
            pair.copy_from_slice(&[byte & 15, byte >> 4]);
        }
        (0.01, 0.0)
    }
}

/// Times the integer product; items are multiply-adds.
fn packed(bencher: Bencher<'_, '_>, m: usize, (rows, k): (usize, usize), threads: usize) {
    let pool = Pool::new(threads);
    let data = (0..rows * k / 2).map(|i| (i * 31) as u8).collect();
    let weights = PackedRows::pack(&pool, &[&Codes { data, rows, k }]).expect("memory");
    let (x, mut y) = (numbers(m * k), vec![f16::ZERO; m * rows]);
    let bencher = bencher
        .counter(ItemsCount::new(m * rows * k))
        .counter(BytesCount::new(rows * k * 9 / 16));
    bencher.bench_local(|| {
        let product = Product {
            weights: &weights[0],
            out: &mut y[..],
            add: None,
        };
        packed_linear(&pool, black_box(&x), m, &mut [Some(product)]);
    });
}

#[divan::bench(args = SHAPES, consts = THREADS)]
fn packed_gemv<const T: usize>(bencher: Bencher<'_, '_>, shape: (usize, usize)) {
    packed(bencher, 1, shape, T);
}

#[divan::bench(args = [4, 16, 32, 128, 512], consts = THREADS)]
fn packed_gemm<const T: usize>(bencher: Bencher<'_, '_>, m: usize) {
    packed(bencher, m, (1536, 576), T);
}

#[divan::bench(args = SHAPES, consts = THREADS)]
fn gemv_int4<const T: usize>(bencher: Bencher<'_, '_>, shape: (usize, usize)) {
    four_bit(bencher, 1, shape, T);
}

#[divan::bench(args = [4, 16, 32, 128, 512], consts = THREADS)]
fn gemm_int4<const T: usize>(bencher: Bencher<'_, '_>, m: usize) {
    four_bit(bencher, m, (1536, 576), T);
}

#[divan::bench(args = [128, 512], consts = THREADS)]
fn gemm_int4_down<const T: usize>(bencher: Bencher<'_, '_>, m: usize) {
    four_bit(bencher, m, (576, 1536), T);
}

#[divan::bench(consts = THREADS)]
fn gemv_f16<const T: usize>(bencher: Bencher<'_, '_>) {
    let (pool, n, k) = (Pool::new(T), 1536, 576);
    let data = numbers(n * k);
    let w = DenseRows::new(&data, k, Rounding::F16).expect("whole rows");
    let (x, mut y) = (numbers(k), vec![f16::ZERO; n]);
    bencher
        .counter(BytesCount::new(2 * n * k))
        .bench_local(|| linear(&pool, black_box(&x), &w, &mut y, 1));
}

/// 9 heads over 3, width 64; items are query-key pairs of all heads.
fn attend(bencher: Bencher<'_, '_>, m: usize, s: usize, threads: usize) {
    let (pool, d, heads, kv_heads) = (Pool::new(threads), 64, 9, 3);
    let (q, k, v) = (
        numbers(heads * m * d),
        numbers(kv_heads * s * d),
        numbers(kv_heads * s * d),
    );
    let mut out = vec![f16::ZERO; heads * m * d];
    let a = Attention {
        q: Heads {
            data: &q,
            head_stride: m * d,
            row_stride: d,
        },
        k: Heads {
            data: &k,
            head_stride: s * d,
            row_stride: d,
        },
        v: Heads {
            data: &v,
            head_stride: s * d,
            row_stride: d,
        },
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
    bencher.counter(ItemsCount::new(pairs)).bench_local(|| {
        let place = HeadsMut {
            data: &mut out,
            head_stride: m * d,
            row_stride: d,
        };
        attention(&pool, black_box(&a), place);
    });
}

#[divan::bench(args = [128, 512, 2048], consts = THREADS)]
fn attention_decode<const T: usize>(bencher: Bencher<'_, '_>, s: usize) {
    attend(bencher, 1, s, T);
}

#[divan::bench(args = [128, 512], consts = THREADS)]
fn attention_prefill<const T: usize>(bencher: Bencher<'_, '_>, m: usize) {
    attend(bencher, m, m, T);
}

#[divan::bench]
fn norm_576(bencher: Bencher<'_, '_>) {
    let (pool, x, scale, mut y) = (Pool::new(1), numbers(576), numbers(576), numbers(576));
    let norm = Norm {
        x: RowsOf {
            data: &x,
            stride: 576,
            width: 576,
        },
        scale: &scale,
        eps: 1e-5,
        in_order: false,
        add: None,
    };
    bencher.bench_local(|| rms_norm(&pool, black_box(&norm), &mut y));
}

#[divan::bench]
fn silu_mul_1536(bencher: Bencher<'_, '_>) {
    let (gate, up, mut y) = (numbers(1536), numbers(1536), numbers(1536));
    bencher.bench_local(|| gated(Activation::Silu, black_box(&gate), &up, &mut y));
}

#[divan::bench(args = [Unary::Neg, Unary::Exp, Unary::GeluTanh, Unary::Gelu])]
fn unary_1536(bencher: Bencher<'_, '_>, op: Unary) {
    let (x, mut y) = (numbers(1536), numbers(1536));
    bencher.bench_local(|| unary(op, black_box(&x), &mut y));
}

#[divan::bench(consts = [2, 4])]
fn pool_empty_run<const T: usize>(bencher: Bencher<'_, '_>) {
    let pool = Pool::new(T);
    bencher.bench_local(|| {
        pool.run(T, &|i| {
            black_box(i);
        });
    });
}
