//! What bundles hold.

/// What a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleKind {
    /// A language model.
    Llm,
    /// A vision-language model.
    Vlm,
    /// An image generator.
    Diffusion,
    /// An image segmenter.
    Segmenter,
    /// Speech to text.
    SpeechRecognizer,
    /// A video generator (F 10).
    VideoDiffusion,
    /// A video segmenter (F 10).
    VideoSegmenter,
}

impl BundleKind {
    pub(crate) const NAMES: [(Self, &'static str); 7] = [
        (Self::Llm, "llm"),
        (Self::Vlm, "vlm"),
        (Self::Diffusion, "diffusion"),
        (Self::Segmenter, "segmenter"),
        (Self::SpeechRecognizer, "speech_recognizer"),
        (Self::VideoDiffusion, "video-diffusion"),
        (Self::VideoSegmenter, "video_segmenter"),
    ];

    /// The name in `metadata.json`.
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(k, _)| *k == self)
            .map_or("", |(_, n)| n)
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::NAMES
            .iter()
            .find(|(_, n)| *n == name)
            .map(|(k, _)| *k)
    }
}
