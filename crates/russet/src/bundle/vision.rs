//! The `vision` part of a vision-language bundle (contract B §2.6, F 1.2), at the top level of `metadata.json`.

use serde_json::Value;

use super::fields::Fields;

/// Mean of CLIP's training images by channel: what pictures are normalised by where the metadata says nothing.
pub const CLIP_MEAN: [f64; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
/// Standard deviation of CLIP's training images by channel.
pub const CLIP_STD: [f64; 3] = [0.268_629_54, 0.261_302_58, 0.275_777_11];

/// How a picture is brought to the size the model takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageStrategy {
    /// Stretched to it, whatever its shape.
    #[default]
    Stretch,
    /// Cut to a square from its centre.
    CenterCrop,
    /// Filled up to a square.
    Pad,
}

impl ImageStrategy {
    const NAMES: [(&'static str, Self); 3] = [
        ("stretch", Self::Stretch),
        ("center_crop", Self::CenterCrop),
        ("pad", Self::Pad),
    ];

    fn parse(value: &Value) -> Option<Self> {
        let name = value.as_str()?;
        let found = Self::NAMES.iter().find(|(n, _)| *n == name);
        found.map(|(_, strategy)| *strategy)
    }
}

/// The `vision` part: how pictures become what the vision asset takes, and where their embeddings go.
#[derive(Clone, Debug, PartialEq)]
pub struct VisionConfig {
    /// Pixels of a side.
    pub image_size: usize,
    /// Pixels of a side of a patch.
    pub patch_size: usize,
    /// Tokens that stand for a picture.
    pub image_token_count: usize,
    /// The token that holds the place of a picture's embeddings.
    pub image_token_id: u32,
    /// Mean by channel, taken from rescaled pixels; [`CLIP_MEAN`] by default.
    pub image_mean: [f64; 3],
    /// Standard deviation by channel; [`CLIP_STD`] by default.
    pub image_std: [f64; 3],
    /// What pixels are multiplied by first; 1 by default.
    pub rescale_factor: f64,
    /// How a picture gets its size.
    pub image_strategy: ImageStrategy,
    /// Whether the prompt says how large a picture was.
    pub include_image_info: bool,
    /// The most frames of a video; `None` where the model takes no videos.
    pub max_video_frames: Option<usize>,
    /// Tokens that stand for a frame.
    pub tokens_per_frame: Option<usize>,
}

impl VisionConfig {
    /// Whether the model takes videos.
    pub fn supports_video(&self) -> bool {
        self.max_video_frames.is_some()
    }

    pub(super) fn read(fields: &Fields<'_>) -> Option<Self> {
        let image_size = fields.require_size("image_size");
        let patch_size = fields.require_size("patch_size");
        let image_token_count = fields.require_size("image_token_count");
        let image_token_id = fields.require("image_token_id", "a token", token);
        let mean = fields.get("image_mean", "three numbers", channels);
        let positive = |v: &Value| channels(v).filter(|c| c.iter().all(|&c| c > 0.0));
        let std = fields.get("image_std", "three positive numbers", positive);
        let factor = |v: &Value| v.as_f64().filter(|&f| f > 0.0);
        let rescale_factor = fields.get("rescale_factor", "a positive number", factor);
        let what = "stretch, center_crop or pad";
        let image_strategy = fields.get("image_strategy", what, ImageStrategy::parse);
        let include_image_info = fields.flag("include_image_info");
        Some(Self {
            image_size: image_size?,
            patch_size: patch_size?,
            image_token_count: image_token_count?,
            image_token_id: image_token_id?,
            image_mean: mean.unwrap_or(CLIP_MEAN),
            image_std: std.unwrap_or(CLIP_STD),
            rescale_factor: rescale_factor.unwrap_or(1.0),
            image_strategy: image_strategy.unwrap_or_default(),
            include_image_info: include_image_info.unwrap_or(false),
            max_video_frames: fields.size("max_video_frames"),
            tokens_per_frame: fields.size("tokens_per_frame"),
        })
    }
}

/// A token that fits the 32-bit signed integers the models take.
fn token(value: &Value) -> Option<u32> {
    u32::try_from(i32::try_from(value.as_i64()?).ok()?).ok()
}

fn channels(value: &Value) -> Option<[f64; 3]> {
    let list = value.as_array()?.iter().map(Value::as_f64);
    list.collect::<Option<Vec<_>>>()?.try_into().ok()
}
