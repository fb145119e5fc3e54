//! The large kernels, compiled here once for each storage type. A generic function is compiled in every crate that calls it, each
//! time anew and as that crate is optimised; these are methods of types instead.

use half::{bf16, f16};

use crate::attention::{self, Attention, Cached, HeadsMut};
use crate::linear;
use crate::packed::{self, Product};
use crate::quant::RowFormat;
use crate::threads::Pool;

/// The products of rows of a type: see [`linear`](crate::linear::linear) and [`packed_linear`](crate::packed::packed_linear).
pub trait Products: Sized {
    /// Products with weights as they are.
    fn linear(pool: &Pool, x: &[Self], weights: &dyn RowFormat, out: &mut [Self], m: usize);
    /// Products with packed weights.
    fn packed_linear(pool: &Pool, x: &[Self], m: usize, products: &mut [Option<Product<'_, Self>>]);
}

/// What caches keep for queries of a type: see [`attention`](crate::attention::attention).
pub trait CachedFor<T>: Cached {
    /// Attention over such a cache.
    fn attention(pool: &Pool, a: &Attention<'_, T, Self>, out: HeadsMut<'_, T>);
}

macro_rules! compiled {
    ($($elem:ty),*) => {$(
        impl Products for $elem {
            fn linear(
                pool: &Pool,
                x: &[Self],
                weights: &dyn RowFormat,
                out: &mut [Self],
                m: usize,
            ) {
                linear::linear_on(crate::isa::Isa::best(), pool, x, weights, out, m);
            }
            fn packed_linear(
                pool: &Pool,
                x: &[Self],
                m: usize,
                products: &mut [Option<Product<'_, Self>>],
            ) {
                packed::packed_linear_on(crate::isa::Isa::best(), pool, x, m, products);
            }
        }
        compiled!(@cached $elem, $elem);
        compiled!(@cached $elem, u8);
    )*};
    (@cached $elem:ty, $kept:ty) => {
        impl CachedFor<$elem> for $kept {
            fn attention(pool: &Pool, a: &Attention<'_, $elem, Self>, out: HeadsMut<'_, $elem>) {
                attention::attention_on(crate::isa::Isa::best(), pool, a, out);
            }
        }
    };
}

compiled!(f32, f16, bf16);
