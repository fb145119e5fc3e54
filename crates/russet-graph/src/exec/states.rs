//! What lives from call to call: caches and running values.

use russet_kernels::mem::AlignedBuf;

use super::build::Plan;
use super::run::RunError;
use crate::types::DType;

/// The states of one conversation, in the order of [`Plan::states`]: their owner decides how long they live.
#[derive(Debug, Default)]
pub struct States {
    pub(super) buffers: Vec<AlignedBuf>,
    types: Vec<(DType, Vec<usize>)>,
}

impl States {
    /// Zeroed states for a plan; `extent` chooses the extents that the plan leaves open.
    pub fn new(plan: &Plan, extent: impl Fn(&str, usize) -> usize) -> Result<Self, RunError> {
        let mut this = Self::default();
        for state in &plan.states {
            let axes = state.ty.shape.iter().enumerate();
            let shape: Vec<usize> = axes
                .map(|(i, d)| {
                    d.as_const()
                        .and_then(|c| usize::try_from(c).ok())
                        .unwrap_or_else(|| extent(&state.name, i))
                })
                .collect();
            let bytes =
                packed_len(state.ty.dtype, &shape).ok_or_else(|| too_large(&state.name, &shape))?;
            this.buffers.push(AlignedBuf::sparse(bytes)?);
            this.types.push((state.ty.dtype, shape));
        }
        Ok(this)
    }

    /// Zeroed states of these kinds and shapes.
    ///
    /// # Errors
    /// [`RunError::Memory`] where the memory cannot be had.
    pub fn zeroed(types: Vec<(DType, Vec<usize>)>) -> Result<Self, RunError> {
        let mut buffers = Vec::with_capacity(types.len());
        for (dtype, shape) in &types {
            let bytes = packed_len(*dtype, shape).ok_or_else(|| too_large("", shape))?;
            buffers.push(AlignedBuf::sparse(bytes)?);
        }
        Ok(Self { buffers, types })
    }

    /// Takes some of the states out, for a function that has just these, in this order. Until [`States::put_back`] they are
    /// empty here.
    ///
    /// # Panics
    /// If there is no such state.
    pub fn lend(&mut self, which: &[usize]) -> Self {
        let buffers = which.iter().map(|&i| std::mem::take(&mut self.buffers[i]));
        Self {
            buffers: buffers.collect(),
            types: which.iter().map(|&i| self.types[i].clone()).collect(),
        }
    }

    /// The inverse of [`States::lend`].
    ///
    /// # Panics
    /// If there is no such state.
    pub fn put_back(&mut self, which: &[usize], lent: Self) {
        for (&to, buffer) in which.iter().zip(lent.buffers) {
            self.buffers[to] = buffer;
        }
    }

    /// Gives one axis of a state another extent. The first `keep` indices along it keep what they hold, the others hold zeros.
    ///
    /// # Errors
    /// [`RunError::Memory`] where the memory cannot be had; the state is as before.
    ///
    /// # Panics
    /// If there is no such state or axis.
    pub fn resize(
        &mut self,
        index: usize,
        axis: usize,
        extent: usize,
        keep: usize,
    ) -> Result<(), RunError> {
        let (dtype, shape) = &self.types[index];
        let (dtype, old) = (*dtype, shape[axis]);
        if old == extent {
            return Ok(());
        }
        let mut wanted = shape.clone();
        wanted[axis] = extent;
        let bytes = packed_len(dtype, &wanted).ok_or_else(|| too_large("", &wanted))?;
        let mut grown = AlignedBuf::sparse(bytes)?;
        let (from, to) = (Runs::of(dtype, shape, axis), Runs::of(dtype, &wanted, axis));
        let len = keep.min(extent).min(old) * from.one;
        let old = self.buffers[index].as_bytes().chunks_exact(from.all.max(1));
        let new = grown.as_bytes_mut().chunks_exact_mut(to.all.max(1));
        old.zip(new)
            .for_each(|(from, to)| to[..len].copy_from_slice(&from[..len]));
        self.buffers[index] = grown;
        self.types[index].1 = wanted;
        Ok(())
    }

    /// The bytes of the first `keep` indices (or of all there are) along an axis of a state, row-major.
    ///
    /// # Panics
    /// If there is no such state or axis.
    pub fn part(&self, index: usize, axis: usize, keep: usize) -> Vec<u8> {
        let (dtype, shape) = &self.types[index];
        let runs = Runs::of(*dtype, shape, axis);
        let len = keep.min(shape[axis]) * runs.one;
        let mut part = Vec::new();
        for run in self.buffers[index].as_bytes().chunks_exact(runs.all.max(1)) {
            part.extend_from_slice(&run[..len]);
        }
        part
    }

    /// The inverse of [`States::part`]: writes the first `keep` indices along an axis.
    ///
    /// # Panics
    /// If there is no such state or axis, or `bytes` has another length than such a part.
    pub fn set_part(&mut self, index: usize, axis: usize, keep: usize, bytes: &[u8]) {
        let (dtype, shape) = &self.types[index];
        let runs = Runs::of(*dtype, shape, axis);
        let len = keep * runs.one;
        let all = self.buffers[index].as_bytes_mut();
        let held = all.chunks_exact_mut(runs.all.max(1));
        assert_eq!(held.len() * len, bytes.len(), "a part of the state");
        for (to, from) in held.zip(bytes.chunks_exact(len.max(1))) {
            to[..len].copy_from_slice(from);
        }
    }

    /// Puts the states into another order: the new state `i` is the old state `order[i]`.
    ///
    /// # Panics
    /// If `order` is not an order of the states.
    pub fn arrange(&mut self, order: &[usize]) {
        assert_eq!(order.len(), self.len(), "an order of the states");
        let mut taken: Vec<_> = std::mem::take(self).into_parts().map(Some).collect();
        for &from in order {
            let (buffer, ty) = taken[from].take().expect("every state once");
            self.buffers.push(buffer);
            self.types.push(ty);
        }
    }

    fn into_parts(self) -> impl Iterator<Item = (AlignedBuf, (DType, Vec<usize>))> {
        self.buffers.into_iter().zip(self.types)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Element kind and shape of a state.
    pub fn ty(&self, index: usize) -> (DType, &[usize]) {
        (self.types[index].0, &self.types[index].1)
    }

    /// The bytes of a state.
    pub fn bytes(&self, index: usize) -> &[u8] {
        self.buffers[index].as_bytes()
    }

    /// The bytes of a state, to be written.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        self.buffers[index].as_bytes_mut()
    }

    /// Memory of all states, in bytes.
    pub fn size(&self) -> usize {
        self.buffers.iter().map(|b| b.as_bytes().len()).sum()
    }
}

/// How the indices along an axis lie: `one` byte run each, `all` of them side by side, again and again.
struct Runs {
    one: usize,
    all: usize,
}

impl Runs {
    fn of(dtype: DType, shape: &[usize], axis: usize) -> Self {
        let inner: usize = shape[axis + 1..].iter().product();
        let one = dtype.packed_len(inner).unwrap_or(0);
        Self {
            one,
            all: one * shape[axis],
        }
    }
}

fn packed_len(dtype: DType, shape: &[usize]) -> Option<usize> {
    let elements = crate::tensor::element_count(shape).ok()?;
    dtype.packed_len(elements)
}

fn too_large(name: &str, shape: &[usize]) -> RunError {
    RunError::Memory(format!("state {name:?} of shape {shape:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> States {
        let n: usize = shape.iter().product();
        let mut buffer = AlignedBuf::sparse(n).unwrap();
        for (i, b) in buffer.as_bytes_mut().iter_mut().enumerate() {
            *b = 1 + i as u8;
        }
        States {
            buffers: vec![buffer],
            types: vec![(DType::U8, shape.to_vec())],
        }
    }

    #[test]
    fn a_longer_axis_keeps_what_it_held() {
        let mut states = counted(&[2, 2, 3]);
        states.resize(0, 1, 4, 1).unwrap();
        assert_eq!(states.ty(0), (DType::U8, &[2, 4, 3][..]));
        let rows: Vec<&[u8]> = states.bytes(0).chunks(3).collect();
        let zero: &[u8] = &[0, 0, 0];
        let want: [&[u8]; 8] = [&[1, 2, 3], zero, zero, zero, &[7, 8, 9], zero, zero, zero];
        assert_eq!(rows, want);
    }

    #[test]
    fn a_part_can_be_put_back() {
        for (axis, keep) in [(0, 1), (1, 2), (2, 3), (2, 1), (1, 0), (1, 9)] {
            let mut states = counted(&[2, 2, 3]);
            let part = states.part(0, axis, keep);
            let keep = keep.min([2, 2, 3][axis]);
            assert_eq!(part.len(), 12 / [2, 2, 3][axis] * keep);
            states.bytes_mut(0).fill(0);
            states.set_part(0, axis, keep, &part);
            assert_eq!(states.part(0, axis, keep), part);
            let held = states.bytes(0).iter().filter(|b| **b != 0).count();
            assert_eq!(held, part.len());
        }
    }

    #[test]
    fn states_can_be_lent() {
        let types = vec![
            (DType::U8, vec![2]),
            (DType::U8, vec![3]),
            (DType::F16, vec![1]),
        ];
        let mut states = States::zeroed(types).unwrap();
        let mut lent = states.lend(&[2, 0]);
        assert_eq!(
            (lent.ty(0), lent.ty(1).1),
            ((DType::F16, &[1][..]), &[2][..])
        );
        assert_eq!(states.bytes(0).len(), 0);
        lent.bytes_mut(1)[1] = 7;
        states.put_back(&[2, 0], lent);
        assert_eq!((states.bytes(0), states.bytes(2).len()), (&[0, 7][..], 2));
    }

    #[test]
    fn states_can_change_places() {
        let mut states = counted(&[2]);
        let mut other = counted(&[3]);
        states.buffers.append(&mut other.buffers);
        states.types.append(&mut other.types);
        states.arrange(&[1, 0]);
        assert_eq!((states.ty(0).1, states.ty(1).1), (&[3][..], &[2][..]));
        assert_eq!(states.bytes(1), [1, 2]);
    }
}
