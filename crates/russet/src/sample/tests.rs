//! The sampler's rules, by counting draws.

use super::*;

fn draws(sampling: &Sampling, logits: &[f32], n: usize) -> Vec<usize> {
    let mut sampler = Sampler::new(&Sampling {
        seed: Some(11),
        ..sampling.clone()
    })
    .unwrap();
    let mut counts = vec![0; logits.len()];
    (0..n).for_each(|_| counts[sampler.sample(logits) as usize] += 1);
    counts
}

fn warm() -> Sampling {
    Sampling {
        temperature: 1.0,
        ..Sampling::default()
    }
}

#[test]
fn greedy_takes_the_first_largest() {
    assert_eq!(
        draws(&Sampling::default(), &[1.0, 3.0, 3.0, f32::NAN], 2),
        [0, 2, 0, 0]
    );
    let one = Sampling {
        top_k: Some(1),
        ..warm()
    };
    assert_eq!(draws(&one, &[0.0, 2.0, 1.0], 50), [0, 50, 0]);
}

#[test]
fn draws_follow_the_distribution() {
    let counts = draws(
        &warm(),
        &[0.0, (2f32).ln(), f32::NEG_INFINITY, f32::NAN],
        30_000,
    );
    assert!(
        (counts[1] as f64 / counts[0] as f64 - 2.0).abs() < 0.1,
        "{counts:?}"
    );
    assert_eq!(counts[2..], [0, 0]);
    let cold = Sampling {
        temperature: 0.01,
        ..Sampling::default()
    };
    assert_eq!(draws(&cold, &[1.0, 1.5, 0.0], 100), [0, 100, 0]);
}

#[test]
fn filters_keep_what_they_say() {
    let logits: Vec<f32> = [0.5f32, 0.3, 0.15, 0.05].iter().map(|p| p.ln()).collect();
    let kept = |s: Sampling| draws(&s, &logits, 4000).iter().filter(|&&c| c > 0).count();
    assert_eq!(
        kept(Sampling {
            top_k: Some(2),
            ..warm()
        }),
        2
    );
    assert_eq!(
        kept(Sampling {
            top_p: Some(0.5),
            ..warm()
        }),
        1
    );
    assert_eq!(
        kept(Sampling {
            top_p: Some(0.79),
            ..warm()
        }),
        2
    );
    assert_eq!(
        kept(Sampling {
            top_p: Some(1.0),
            ..warm()
        }),
        4
    );
    assert_eq!(
        kept(Sampling {
            min_p: Some(0.29),
            ..warm()
        }),
        3
    );
    assert_eq!(
        kept(Sampling {
            min_p: Some(1.0),
            ..warm()
        }),
        1
    );
    assert_eq!(
        kept(Sampling {
            min_p: Some(0.29),
            top_k: Some(2),
            top_p: Some(0.99),
            ..warm()
        }),
        2
    );
}

#[test]
fn a_seed_repeats() {
    let logits = [0.0; 64];
    let run = |seed| {
        let mut s = Sampler::new(&Sampling {
            seed: Some(seed),
            ..warm()
        })
        .unwrap();
        (0..20).map(|_| s.sample(&logits[..])).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn bad_numbers_are_named() {
    let error = |s: Sampling| Sampler::new(&s).unwrap_err().to_string();
    assert_eq!(
        error(Sampling {
            temperature: -1.0,
            ..warm()
        }),
        "temperature is -1, it must be 0 or more"
    );
    assert_eq!(
        error(Sampling {
            temperature: f64::NAN,
            ..warm()
        }),
        "temperature is NaN, it must be 0 or more"
    );
    assert_eq!(
        error(Sampling {
            top_k: Some(0),
            ..warm()
        }),
        "top-k is 0, it must be 1 or more"
    );
    assert_eq!(
        error(Sampling {
            top_p: Some(0.0),
            ..warm()
        }),
        "top-p is 0, it must be above 0 and at most 1"
    );
    assert_eq!(
        error(Sampling {
            min_p: Some(1.5),
            ..warm()
        }),
        "min-p is 1.5, it must be above 0 and at most 1"
    );
}

#[test]
fn extreme_rows_do_not_break_it() {
    assert_eq!(draws(&warm(), &[f32::INFINITY, 0.0], 10), [10, 0]);
    assert_eq!(draws(&warm(), &[f32::NAN, f32::NEG_INFINITY], 3)[0], 3);
    assert_eq!(draws(&warm(), &[1e38, -1e38], 10), [10, 0]);
}

#[test]
fn nothing_is_allocated_after_the_first_draw() {
    let logits: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut s = Sampler::new(&Sampling {
        top_p: Some(0.9),
        top_k: Some(900),
        min_p: Some(0.01),
        seed: Some(1),
        ..warm()
    })
    .unwrap();
    s.sample(&logits[..]);
    let memory = (s.candidates.as_ptr(), s.candidates.capacity());
    assert!((0..20).all(|_| s.sample(&logits[..]) < 5000));
    assert_eq!((s.candidates.as_ptr(), s.candidates.capacity()), memory);
}

#[test]
fn blockwise_top_p_is_what_sorting_everything_gives() {
    let mut rng = SplitMix64::new(5);
    for p in [0.01, 0.3, 0.5, 0.9, 0.999] {
        let weights: Vec<Candidate> = (0..3000).map(|id| (rng.unit() as f32, id)).collect();
        let mut sorted = weights.clone();
        sorted.sort_by(likelier);
        let wanted = p * weights.iter().map(|c| f64::from(c.0)).sum::<f64>();
        let mut mass = 0.0;
        let count = 1 + sorted
            .iter()
            .position(|c| {
                mass += f64::from(c.0);
                mass >= wanted
            })
            .unwrap();
        let mut kept = weights;
        keep_mass(&mut kept, p);
        assert_eq!(kept, sorted[..count], "{p}");
    }
}

#[test]
fn a_tiny_temperature_is_greedy_and_a_huge_one_is_even() {
    let at = |temperature| Sampling {
        temperature,
        ..Sampling::default()
    };
    for t in [f64::MIN_POSITIVE, 1e-40, 1e-9] {
        assert_eq!(
            draws(&at(t), &[-3.0, -1.0, -2.0, f32::NAN], 20),
            [0, 20, 0, 0]
        );
    }
    let counts = draws(&at(1e30), &[0.0, 50.0], 4000);
    assert!(counts[0].abs_diff(counts[1]) < 400, "{counts:?}");
}

#[test]
fn the_generator_is_the_published_one() {
    // First outputs of SplitMix64 for seed 1234567, from the reference implementation by Sebastiano Vigna.
    let mut rng = SplitMix64::new(1_234_567);
    assert_eq!(
        [rng.next_u64(), rng.next_u64(), rng.next_u64()],
        [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423
        ]
    );
}
