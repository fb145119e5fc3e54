//! Where codes of 1 to 8 bits lie in a stream whose bytes are filled from the lowest bit up: for each of sixteen codes the bytes it is
//! in, and how far into them it begins. Byte shuffles and shifts by lane take these as they are.

/// For each code the four bytes of its lane: those it is in, then numbers that select nothing.
pub(super) const fn places(bits: usize) -> [u8; 64] {
    let mut out = [0x80; 64];
    let mut lane = 0;
    while lane < 16 {
        let first = lane * bits;
        out[4 * lane] = (first / 8) as u8;
        if first % 8 + bits > 8 {
            out[4 * lane + 1] = (first / 8 + 1) as u8;
        }
        lane += 1;
    }
    out
}

/// For each code the bits before it in its first byte.
pub(super) const fn shifts(bits: usize) -> [i32; 16] {
    let mut out = [0; 16];
    let mut lane = 0;
    while lane < 16 {
        out[lane] = (lane * bits % 8) as i32;
        lane += 1;
    }
    out
}

/// Code `i` of a stream of codes of up to 8 bits.
#[inline(always)]
pub(crate) fn code(data: &[u8], bits: usize, i: usize) -> u8 {
    let (byte, shift) = (i * bits / 8, i * bits % 8);
    let low = u16::from(data[byte]);
    let high = if shift + bits > 8 {
        u16::from(data[byte + 1])
    } else {
        0
    };
    ((low | high << 8) >> shift) as u8 & (255 >> (8 - bits))
}
