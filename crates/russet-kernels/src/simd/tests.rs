//! Operations whose results are the same bits everywhere, on every instruction set of the machine.

use super::{Kernel, MAX_LANES, Simd};
use crate::isa::Isa;
use crate::testing::Random;

/// The most tokens of a run.
const TOKENS: usize = 6;

/// A block's codes and the words of some tokens, token by token.
#[derive(Clone, Copy)]
struct Dots<'a> {
    codes: &'a [u8],
    words: &'a [[i32; 8]],
    starts: &'a [i32],
    wide: bool,
}

impl Dots<'_> {
    /// Each token's sums.
    #[inline(always)]
    fn run_of<S: Simd, const WIDE: bool, const N: usize>(&self, s: S) -> Vec<Vec<f32>> {
        let mut codes = [s.ints(0); 8];
        for (i, register) in codes.iter_mut().enumerate() {
            let bytes = &self.codes[4 * MAX_LANES * i..];
            *register = if WIDE {
                s.load_wide(bytes)
            } else {
                s.low_nibbles(s.load_ints(bytes))
            };
        }
        let mut x = [0; 8 * TOKENS];
        for (token, words) in self.words.iter().enumerate() {
            for (c, word) in words.iter().enumerate() {
                x[S::place(token, N, c)] = *word;
            }
        }
        let sums: [S::I; N] = s.dot_tokens::<WIDE, N>(self.starts, &codes, &x[..8 * N]);
        sums.map(|sum| lanes(s, s.to_float(sum))).into()
    }

    #[inline(always)]
    fn tokens<S: Simd, const WIDE: bool>(&self, s: S) -> Vec<Vec<f32>> {
        match self.words.len() {
            1 => self.run_of::<S, WIDE, 1>(s),
            2 => self.run_of::<S, WIDE, 2>(s),
            4 => self.run_of::<S, WIDE, 4>(s),
            _ => self.run_of::<S, WIDE, TOKENS>(s),
        }
    }

    /// What lane `lane` is for `token`, codes less `bias`.
    fn want(&self, token: usize, lane: usize, bias: i32) -> f32 {
        let mut sum = self.starts[token];
        for (c, word) in self.words[token].iter().enumerate() {
            let at = 4 * (MAX_LANES * c + lane);
            for (code, b) in self.codes[at..at + 4].iter().zip(word.to_le_bytes()) {
                let code = if self.wide { *code } else { code & 15 };
                sum += (i32::from(code) - bias) * i32::from(b.cast_signed());
            }
        }
        sum as f32
    }
}

impl Kernel for Dots<'_> {
    type Out = (i32, Vec<Vec<f32>>);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        if self.wide {
            (S::BIAS, self.tokens::<S, true>(s))
        } else {
            (0, self.tokens::<S, false>(s))
        }
    }
}

fn lanes<S: Simd>(s: S, v: S::V) -> Vec<f32> {
    let mut lanes = vec![0.0; S::LANES];
    s.store(v, &mut lanes);
    lanes
}

fn check(dots: Dots<'_>) {
    for isa in Isa::available() {
        let (bias, got) = isa.run(dots);
        assert_eq!(got.len(), dots.words.len());
        for (token, sums) in got.iter().enumerate() {
            for (lane, sum) in sums.iter().enumerate() {
                let want = dots.want(token, lane, bias);
                let (name, wide) = (isa.name(), dots.wide);
                assert_eq!(*sum, want, "{name} wide={wide} token {token} [{lane}]");
            }
        }
    }
}

/// Four signed bytes, none of them -128.
fn activations(random: &mut Random) -> i32 {
    let byte = |_| (random.next() % 255) as u8;
    i32::from_le_bytes([0; 4].map(byte).map(|b| b.wrapping_sub(127)))
}

#[test]
fn dot_products_of_bytes_are_exact() {
    let mut random = Random::new(5);
    let starts = [-77, 0, 5, 1 << 20, -3, 9];
    for (tokens, wide) in [1, 2, 4, TOKENS]
        .into_iter()
        .flat_map(|t| [(t, false), (t, true)])
    {
        for _ in 0..50 {
            let codes = &random.bytes(4 * MAX_LANES * 8);
            let word = |_| [0; 8].map(|_| activations(&mut random));
            let words = &(0..tokens).map(word).collect::<Vec<_>>();
            check(Dots {
                codes,
                words,
                starts: &starts,
                wide,
            });
        }
        for (code, b) in [
            (0, 127),
            (0, -127),
            (255, 127),
            (255, -127),
            (128, -127),
            (127, 127),
        ] {
            let codes = &[code; 4 * MAX_LANES * 8];
            let words = &vec![[i32::from_le_bytes([b; 4].map(i8::cast_unsigned)); 8]; tokens];
            check(Dots {
                codes,
                words,
                starts: &starts,
                wide,
            });
        }
    }
}

/// Two registers of numbers joined as words.
struct Join;

impl Kernel for Join {
    type Out = Vec<u8>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<u8> {
        let numbers: [f32; MAX_LANES] = std::array::from_fn(|i| i as f32 * 2184.0);
        let mut stored = vec![0; 4 * S::LANES];
        let joined = s.join_words(s.load(&numbers), s.splat(32_767.0));
        s.store_ints(joined, &mut stored);
        stored
    }
}

#[test]
fn numbers_are_joined_as_words() {
    for isa in Isa::available() {
        for (i, words) in words_of(&isa.run(Join)).chunks(2).enumerate() {
            assert_eq!(words, [i as i32 * 2184, 32_767], "{}", isa.name());
        }
    }
}

/// Codes taken apart into words, less `zero`, and their products with a pair of words; numbers stored as words.
struct Words<'a> {
    bytes: &'a [u8],
    zero: i32,
    pair: i32,
}

impl Kernel for Words<'_> {
    type Out = (Vec<u8>, [Vec<f32>; 2], Vec<u8>);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Out {
        let (bytes, zeros) = (s.load_ints(self.bytes), s.ints(self.zero << 16 | self.zero));
        let even = s.sub_words(s.even_bytes(bytes), zeros);
        let odd = s.sub_words(s.odd_bytes(bytes), zeros);
        let mut stored = vec![0; 8 * S::LANES];
        s.store_ints(even, &mut stored);
        s.store_ints(odd, &mut stored[4 * S::LANES..]);
        let dots = [even, odd].map(|v| lanes(s, s.to_float(s.dot2(s.ints(-3), v, self.pair))));
        let mut pairs = vec![0; 2 * S::LANES];
        let numbers: [f32; MAX_LANES] = std::array::from_fn(|i| i as f32 * 4368.0 - 32_767.0);
        s.store_pairs(s.load(&numbers), &mut pairs);
        (stored, dots, pairs)
    }
}

fn words_of(bytes: &[u8]) -> Vec<i32> {
    let word = |b: &[u8]| i32::from(i16::from_le_bytes([b[0], b[1]]));
    bytes.chunks(2).map(word).collect()
}

#[test]
fn products_of_words_are_exact() {
    let mut random = Random::new(8);
    for zero in [0, 8, 128] {
        let bytes = random.bytes(4 * MAX_LANES);
        let pair = [random.next() as i16 | 1, -32_767];
        let [low, high] = pair.map(i16::to_le_bytes);
        let word = i32::from_le_bytes([low[0], low[1], high[0], high[1]]);
        for isa in Isa::available() {
            let given = Words {
                bytes: &bytes,
                zero,
                pair: word,
            };
            let (stored, [even, odd], pairs) = isa.run(given);
            let lanes = even.len();
            let want = |odd: usize| (0..2 * lanes).map(move |i| 2 * i + odd);
            let want: Vec<i32> = want(0)
                .chain(want(1))
                .map(|i| i32::from(bytes[i]) - zero)
                .collect();
            assert_eq!(words_of(&stored), want, "{} {zero}", isa.name());
            for (pairs, dots) in want.chunks(2 * lanes).zip([even, odd]) {
                for (w, dot) in pairs.chunks(2).zip(dots) {
                    let sum = w[0] * i32::from(pair[0]) + w[1] * i32::from(pair[1]) - 3;
                    assert_eq!(dot, sum as f32, "{}", isa.name());
                }
            }
            let order = (0..lanes).map(|i| i - i % 4 + [0, 2, 1, 3][i % 4]);
            let numbers: Vec<i32> = order.map(|i| i as i32 * 4368 - 32_767).collect();
            assert_eq!(words_of(&pairs), numbers, "{}", isa.name());
        }
    }
}

const SPECIAL: [f32; 8] = [
    0.0,
    -0.0,
    1.5,
    -2.5,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    1e-40,
];

/// Two registers through an operation with a name.
struct Pairwise<'a>(&'a str, f32, f32);

impl Kernel for Pairwise<'_> {
    type Out = Vec<f32>;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Vec<f32> {
        let (a, b) = (s.splat(self.1), s.splat(self.2));
        let (one, zero) = (s.splat(1.0), s.splat(0.0));
        let out = match self.0 {
            "min" => s.min(a, b),
            "max" => s.max(a, b),
            "lt" => s.select(s.lt(a, b), one, zero),
            "nan" => s.select(s.is_nan(a), one, zero),
            "abs" => s.abs(a),
            "neg" => s.neg(a),
            "round" => s.round_int(a),
            _ => s.scale2(
                a,
                s.round_int(s.max(s.min(b, s.splat(200.0)), s.splat(-200.0))),
            ),
        };
        lanes(s, out)
    }
}

#[test]
fn special_numbers_are_treated_alike() {
    let names = ["min", "max", "lt", "nan", "abs", "neg", "round", "scale2"];
    for name in names {
        for (a, b) in SPECIAL.iter().flat_map(|a| SPECIAL.map(|b| (*a, b))) {
            let want = Isa::Portable(super::Portable).run(Pairwise(name, a, b))[0];
            for isa in Isa::available() {
                for got in isa.run(Pairwise(name, a, b)) {
                    let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                    assert!(
                        same,
                        "{}: {name}({a}, {b}) = {got}, want {want}",
                        isa.name()
                    );
                }
            }
        }
    }
}

/// Bytes to numbers and back, and nibbles through a table.
struct Bytes<'a>(&'a [u8; MAX_LANES]);

impl Kernel for Bytes<'_> {
    type Out = [Vec<f32>; 5];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [Vec<f32>; 5] {
        let entries: [f32; 16] = std::array::from_fn(|i| (i * i) as f32 - 40.5);
        let table = s.table(|i| s.load(&entries[i..]));
        let (low, high) = s.lookup(table, self.0);
        let mut stored = [0; MAX_LANES];
        s.store_i8(s.load_i8(self.0), &mut stored);
        let registers = [
            s.load_i8(self.0),
            s.load_u8(self.0),
            low,
            high,
            s.load_i8(&stored),
        ];
        registers.map(|v| lanes(s, v))
    }
}

#[test]
fn bytes_and_nibbles_become_numbers() {
    let square = |n: u8| f32::from(n) * f32::from(n) - 40.5;
    for first in (0..=240_u8).step_by(MAX_LANES) {
        let bytes: [u8; MAX_LANES] = std::array::from_fn(|i| first + i as u8);
        for isa in Isa::available() {
            let [signed, unsigned, low, high, stored] = isa.run(Bytes(&bytes));
            for (i, b) in bytes.iter().take(signed.len()).enumerate() {
                let got = [signed[i], unsigned[i], low[i], high[i], stored[i]];
                let number = f32::from(b.cast_signed());
                let want = [
                    number,
                    f32::from(*b),
                    square(b & 15),
                    square(b >> 4),
                    number,
                ];
                assert_eq!(got, want, "{} {b}", isa.name());
            }
        }
    }
}

/// Sixteen codes of `BITS` bits, and what two kinds of tables make of them.
struct Codes<'a, const BITS: usize>(&'a [u8; 16], &'a [f32; 256]);

impl<const BITS: usize> Kernel for Codes<'_, BITS> {
    type Out = [Vec<f32>; 2];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [Vec<f32>; 2] {
        let table = s.table(|i| s.load(&self.1[i..]));
        let mut out = [const { Vec::new() }; 2];
        let mut first = 0;
        while first < 16 {
            let codes = s.codes::<BITS>(self.0, first);
            let found = [s.pick(table, codes), s.fetch::<BITS>(self.1, codes)];
            for (out, v) in out.iter_mut().zip(found) {
                out.extend(lanes(s, v));
            }
            first += S::LANES;
        }
        out
    }
}

fn check_codes<const BITS: usize>() {
    // What lies above a code of few bits does not matter where the table repeats.
    let entry = |i: usize| ((i & ((1 << BITS) - 1)) * 7 % 256) as f32 - 100.5;
    let table: [f32; 256] = std::array::from_fn(entry);
    let bytes: [u8; 16] = std::array::from_fn(|i| (i * 83 + 29) as u8);
    let number = u128::from_le_bytes(bytes);
    for isa in Isa::available() {
        let [low, all] = isa.run(Codes::<BITS>(&bytes, &table));
        for i in 0..16 {
            let want = (number >> (i * BITS)) as usize & ((1 << BITS) - 1);
            assert_eq!(low[i], table[want & 15], "{} {BITS} bits", isa.name());
            let found = BITS <= 4 || all[i] == table[want];
            assert!(found, "{} {BITS} bits", isa.name());
        }
    }
}

#[test]
fn codes_of_every_width_are_taken_apart_and_looked_up() {
    check_codes::<1>();
    check_codes::<2>();
    check_codes::<3>();
    check_codes::<4>();
    check_codes::<6>();
    check_codes::<8>();
}
