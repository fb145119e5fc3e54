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

/// Draws until the counts can be told from those of another distribution (chi-square, beyond a chance of one in 10⁹).
fn fits(sampling: &Sampling, logits: &[f32], expected: &[f64]) {
    const DRAWS: usize = 1_000_000;
    let counts = draws(sampling, logits, DRAWS);
    let mut chi = 0.0;
    let mut free = -1.0;
    for (count, p) in counts.iter().zip(expected) {
        if *p == 0.0 {
            assert_eq!(*count, 0, "{sampling:?} {counts:?}");
            continue;
        }
        let wanted = p * DRAWS as f64;
        chi += (*count as f64 - wanted).powi(2) / wanted;
        free += 1.0;
    }
    // Wilson and Hilferty: the cube root is nearly normal.
    let free = f64::max(free, 1.0);
    let z = ((chi / free).cbrt() - (1.0 - 2.0 / (9.0 * free))) / (2.0 / (9.0 * free)).sqrt();
    assert!(
        z < 6.0,
        "{sampling:?}: {counts:?} against {expected:?}, z {z}"
    );
}

/// The distribution by its definition, with every token sorted at every filter.
fn defined(sampling: &Sampling, logits: &[f32]) -> Vec<f64> {
    let mut p: Vec<f64> = logits.iter().map(|l| f64::from(*l).exp()).collect();
    let temper = |p: &mut Vec<f64>| {
        p.iter_mut()
            .for_each(|x| *x = x.powf(1.0 / sampling.temperature))
    };
    let min_p = |p: &mut Vec<f64>| {
        let floor = sampling.min_p.unwrap_or(0.0) * p.iter().copied().fold(0.0, f64::max);
        p.iter_mut()
            .filter(|x| **x < floor * (1.0 - 1e-6))
            .for_each(|x| *x = 0.0);
    };
    let order = |p: &[f64]| {
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|a, b| p[*b].total_cmp(&p[*a]).then(a.cmp(b)));
        order
    };
    let top_p = |p: &mut Vec<f64>| {
        let wanted = sampling.top_p.unwrap_or(1.0) * p.iter().sum::<f64>();
        let mut mass = 0.0;
        for id in order(p) {
            let done = mass >= wanted * (1.0 - 1e-6);
            mass += p[id];
            if done {
                p[id] = 0.0;
            }
        }
    };
    let top_k = |p: &mut Vec<f64>| {
        for id in order(p)
            .into_iter()
            .skip(sampling.top_k.unwrap_or(usize::MAX))
        {
            p[id] = 0.0;
        }
    };
    match sampling.order {
        FilterOrder::TemperatureFirst => {
            temper(&mut p);
            min_p(&mut p);
            top_p(&mut p);
            top_k(&mut p);
        }
        FilterOrder::TopKFirst => {
            top_k(&mut p);
            top_p(&mut p);
            min_p(&mut p);
            temper(&mut p);
        }
    }
    let sum: f64 = p.iter().sum();
    p.iter().map(|x| x / sum).collect()
}

#[test]
fn the_distribution_is_the_defined_one_for_every_filter_and_all_together() {
    let logits = [
        1.1,
        0.9,
        0.3,
        f32::NEG_INFINITY,
        -0.4,
        0.9,
        -1.7,
        2.0,
        -3.1,
        0.0,
    ];
    std::thread::scope(|scope| {
        for order in [FilterOrder::TemperatureFirst, FilterOrder::TopKFirst] {
            scope.spawn(move || {
                for filters in 0..8_u32 {
                    let on = |bit: u32| filters & (1 << bit) != 0;
                    let sampling = Sampling {
                        temperature: if on(0) { 0.6 } else { 1.7 },
                        top_k: on(0).then_some(6),
                        top_p: on(1).then_some(0.83),
                        min_p: on(2).then_some(0.11),
                        order,
                        ..Sampling::default()
                    };
                    fits(&sampling, &logits, &defined(&sampling, &logits));
                }
            });
        }
    });
}

#[test]
fn penalties_change_what_occurred() {
    let mut sampling = Sampling::default();
    sampling.penalties.repetition = 2.0;
    sampling.penalties.frequency = 0.5;
    sampling.penalties.presence = 0.25;
    let adjusted = |sampling: &Sampling, prompt: &[Token], answer: &[Token]| {
        let mut sampler = Sampler::new(sampling).unwrap();
        sampler.begin(&[0, 0, 0]);
        sampler.begin(prompt);
        answer.iter().for_each(|t| sampler.accept(*t));
        let mut row = [4.0, -4.0, 0.0, 1.0];
        sampler.adjust(&mut row);
        row
    };
    assert_eq!(
        adjusted(&sampling, &[0, 0], &[1, 99]),
        [0.75, -8.75, 0.0, 1.0]
    );
    sampling.penalties.prompt = false;
    assert_eq!(adjusted(&sampling, &[0, 0], &[1]), [4.0, -8.75, 0.0, 1.0]);
    sampling.penalties.window = Some(2);
    assert_eq!(
        adjusted(&sampling, &[], &[0, 0, 1, 2]),
        [4.0, -8.75, -0.75, 1.0]
    );
    sampling.penalties.prompt = true;
    assert_eq!(
        adjusted(&sampling, &[0, 0, 1], &[2]),
        [4.0, -8.75, -0.75, 1.0]
    );
}

#[test]
fn biases_and_penalties_count_at_temperature_0_too() {
    let mut sampling = Sampling {
        top_k: Some(1),
        temperature: 1.0,
        ..Sampling::default()
    };
    sampling.logit_bias = vec![(1, f32::NEG_INFINITY), (0, 0.5), (77, 1.0)];
    let mut sampler = Sampler::new(&sampling).unwrap();
    assert_eq!(sampler.sample(&[1.0, 3.0, 1.25][..]), 0);
    sampling.penalties.repetition = 1.5;
    let mut sampler = Sampler::new(&sampling).unwrap();
    sampler.accept(0);
    assert_eq!(sampler.sample(&[1.0, 3.0, 1.25][..]), 2);
}

#[test]
fn numbers_out_of_range_are_named() {
    let error = |change: fn(&mut Sampling)| {
        let mut sampling = Sampling::default();
        change(&mut sampling);
        sampling.check().unwrap_err().to_string()
    };
    let all = [
        error(|s| s.penalties.repetition = 0.5),
        error(|s| s.penalties.frequency = f64::NAN),
        error(|s| s.penalties.presence = -2.5),
        error(|s| s.penalties.window = Some(0)),
        error(|s| s.logit_bias = vec![(3, f32::NAN)]),
    ];
    let expected = [
        "repetition penalty is 0.5, it must be 1 or more",
        "frequency penalty is NaN, it must be from -2 to 2",
        "presence penalty is -2.5, it must be from -2 to 2",
        "repetition penalty window is 0, it must be 1 or more",
        "logit bias is NaN for token 3, it must be a number, or minus infinity to ban a token",
    ];
    assert_eq!(all, expected);
}
