//! Tensor files: written and read back, read as NumPy writes them, damaged ones refused.

use super::*;

fn sample(dtype: DType, shape: &[usize]) -> Tensor {
    let n = shape.iter().product::<usize>() as i64;
    let values: Vec<i64> = (0..n).map(|i| i % 5 - 2).collect();
    match dtype.is_float() {
        true => Tensor::from_floats(
            dtype,
            shape,
            &values.iter().map(|&v| v as f64 * 0.5).collect::<Vec<_>>(),
        ),
        false => Tensor::from_ints(dtype, shape, &values),
    }
    .unwrap()
}

const KINDS: [DType; 7] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::U32,
    DType::I64,
    DType::Bool,
];

#[test]
fn tensors_survive_a_round_trip() {
    let shapes: [&[usize]; 4] = [&[], &[3], &[0, 4], &[2, 3, 4]];
    let mut tensors = NamedTensors::new();
    for dtype in KINDS {
        for shape in shapes {
            tensors.push((format!("{dtype}.{}", shape.len()), sample(dtype, shape)));
        }
    }
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    for format in &FORMATS[..2] {
        let bytes = (format.write)(&tensors).unwrap();
        assert_eq!(
            (format.read)(&bytes).unwrap(),
            tensors,
            "{}",
            format.extension
        );
    }
    for (_, tensor) in &tensors {
        let bytes = (FORMATS[2].write)(&[("x".into(), tensor.clone())]).unwrap();
        let back = (FORMATS[2].read)(&bytes).unwrap();
        assert_eq!(back, [(String::new(), tensor.clone())]);
    }
}

#[test]
fn arrays_are_read_as_numpy_writes_them() {
    // numpy.save of numpy.asfortranarray([[1, 2, 3], [4, 5, 6]], dtype=int16), format version 1.
    let mut header = b"{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }".to_vec();
    header.resize(117, b' ');
    header.push(b'\n');
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(header);
    for v in [1i16, 4, 2, 5, 3, 6] {
        file.extend(v.to_le_bytes());
    }
    let tensor = npy::read("a", &file).unwrap();
    assert_eq!(
        (tensor.dtype, &tensor.shape[..], tensor.ints()),
        (DType::I16, &[2, 3][..], vec![1, 2, 3, 4, 5, 6])
    );
}

#[test]
fn damaged_files_are_refused() {
    let good = npy::write("x", &sample(DType::F32, &[2, 2])).unwrap();
    for cut in 0..good.len() {
        assert!(npy::read("x", &good[..cut]).is_err(), "cut at {cut}");
    }
    let archive = npz::write(&[("x".into(), sample(DType::F32, &[2, 2]))]).unwrap();
    for cut in (0..archive.len()).step_by(7) {
        assert!(npz::read(&archive[..cut]).is_err(), "cut at {cut}");
    }
    assert!(safetensors::read(&[9, 0, 0, 0, 0, 0, 0, 0, b'{']).is_err());
    let mut huge = b"\x93NUMPY\x01\x00\x4a\x00".to_vec();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 9)}";
    huge.extend(format!("{header:<74}").bytes());
    assert!(npy::read("x", &huge).is_err());
}

#[test]
fn what_a_format_cannot_hold_is_refused() {
    let int4 = ("w".to_owned(), sample(DType::I4, &[4]));
    let error = safetensors::write(std::slice::from_ref(&int4), None).unwrap_err();
    assert!(error.to_string().contains("i4"), "{error}");
    let two = [int4.clone(), int4];
    assert!(matches!((FORMATS[2].write)(&two), Err(Problem::Several(2))));
    assert!(matches!(
        read(Path::new("x.bin")),
        Err(TensorFileError::Format { .. })
    ));
}
