//! Image generators: which file is which component, by three ways (contract B §2.8).
//!
//! The metadata's `assets` name components by role, with `unet` for `transformer`; variants for other sizes are found by the
//! names that the exporter gives their files; without metadata all are guessed from parts of file names. Which modes a bundle
//! can run in follows from the components it has.

use super::error::BundleError;
use super::fields::{Faults, Fields, sizes, strictly};
use super::kind::BundleKind;
use super::model::{METADATA, ModelBundle, raw_metadata};
use super::source::Source;

/// A part of an image generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiffusionComponent {
    /// The network that takes noise away, for the full size.
    Denoiser,
    /// The same for half the size.
    DenoiserHalf,
    /// Text to embeddings.
    TextEncoder,
    /// The second such encoder.
    TextEncoder2,
    /// Latents to pixels.
    VaeDecoder,
    /// Latents of half the size to pixels.
    VaeDecoderHalf,
    /// Pixels to latents.
    VaeEncoder,
    /// Pixels of half the size to latents.
    VaeEncoderHalf,
}

/// How a component is named: by role in the metadata, by file without it.
struct Names {
    component: DiffusionComponent,
    roles: &'static [&'static str],
    file: &'static str,
}

/// One line a component.
const COMPONENTS: [Names; 8] = {
    use DiffusionComponent as C;
    const fn names(component: C, roles: &'static [&'static str], file: &'static str) -> Names {
        Names {
            component,
            roles,
            file,
        }
    }
    [
        names(C::Denoiser, &["transformer", "unet"], "Transformer"),
        names(C::DenoiserHalf, &["transformer_512"], "Transformer_512"),
        names(C::TextEncoder, &["text_encoder"], "TextEncoder"),
        names(C::TextEncoder2, &["text_encoder_2"], "TextEncoder2"),
        names(C::VaeDecoder, &["vae_decoder"], "VAEDecoder"),
        names(C::VaeDecoderHalf, &["vae_decoder_half"], "VAEDecoder_half"),
        names(C::VaeEncoder, &["vae_encoder"], "VAEEncoder"),
        names(C::VaeEncoderHalf, &["vae_encoder_half"], "VAEEncoder_half"),
    ]
};

/// Parts of file names, lower-case and without `_` and `-`, with the component they mean; the first that fits counts, and a
/// name with `half` or `512` in it means the smaller variant.
const MARKS: [(&str, DiffusionComponent); 7] = [
    ("textencoder2", DiffusionComponent::TextEncoder2),
    ("textencoder", DiffusionComponent::TextEncoder),
    ("unet", DiffusionComponent::Denoiser),
    ("transformer", DiffusionComponent::Denoiser),
    ("mmdit", DiffusionComponent::Denoiser),
    ("vaedecoder", DiffusionComponent::VaeDecoder),
    ("vaeencoder", DiffusionComponent::VaeEncoder),
];

const HALVES: [(DiffusionComponent, DiffusionComponent); 3] = [
    (
        DiffusionComponent::Denoiser,
        DiffusionComponent::DenoiserHalf,
    ),
    (
        DiffusionComponent::VaeDecoder,
        DiffusionComponent::VaeDecoderHalf,
    ),
    (
        DiffusionComponent::VaeEncoder,
        DiffusionComponent::VaeEncoderHalf,
    ),
];

/// In which sizes an image is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffusionMode {
    /// Denoised and decoded whole.
    Full,
    /// Denoised whole, decoded in tiles.
    Tiled,
    /// Half the size.
    Half,
}

/// What every mode needs, with the names the exporter gives the files; the best mode first.
const MODES: [(DiffusionMode, [DiffusionComponent; 2], &str); 3] = [
    (
        DiffusionMode::Full,
        [DiffusionComponent::Denoiser, DiffusionComponent::VaeDecoder],
        "Transformer and VAEDecoder (full)",
    ),
    (
        DiffusionMode::Tiled,
        [
            DiffusionComponent::Denoiser,
            DiffusionComponent::VaeDecoderHalf,
        ],
        "Transformer and VAEDecoder_half (tiled)",
    ),
    (
        DiffusionMode::Half,
        [
            DiffusionComponent::DenoiserHalf,
            DiffusionComponent::VaeDecoderHalf,
        ],
        "Transformer_512 and VAEDecoder_half (half)",
    ),
];

/// The `diffusion` part of the metadata; what it does not say is left to the pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiffusionConfig {
    /// What the denoiser predicts, such as `epsilon` or `flow`.
    pub prediction_type: Option<String>,
    /// Pixels of a side.
    pub image_size: Option<usize>,
    /// Steps where nothing is said.
    pub default_steps: Option<usize>,
    /// Guidance where nothing is said.
    pub default_guidance_scale: Option<f64>,
    /// Whether the denoiser takes the guidance as an input.
    pub guidance_embeds: Option<bool>,
    /// Epsilon of the decoder's batch norm.
    pub batch_norm_eps: Option<f64>,
    /// Base of the rotary embedding.
    pub rope_theta: Option<f64>,
    /// Dimensions of each axis of the rotary embedding.
    pub rope_axes_dims: Vec<usize>,
}

/// An image generator.
#[derive(Clone, Debug)]
pub struct DiffusionBundle {
    /// The metadata, where there is some.
    pub model: Option<ModelBundle>,
    /// The `diffusion` part.
    pub config: DiffusionConfig,
    /// Every component that is there, with its relative path; the path may be of a compiled asset.
    pub components: Vec<(DiffusionComponent, String)>,
}

impl DiffusionBundle {
    /// Reads an image generator, with or without metadata.
    ///
    /// # Errors
    /// [`BundleError::LegacyPipeline`] where a `pipeline.json` is there; those of the metadata; for components that the metadata
    /// names those of [`ModelBundle::require`]; [`BundleError::MissingComponent`] where no mode is complete.
    pub fn read(source: &dyn Source) -> Result<Self, BundleError> {
        if !source.exists(METADATA) {
            return strictly(|faults| Some(Self::detected(source, faults)));
        }
        let raw = raw_metadata(source)?;
        strictly(|faults| Self::of(ModelBundle::of(raw, faults)?, source, faults))
    }

    /// The image generator that metadata describes.
    pub(crate) fn of(model: ModelBundle, source: &dyn Source, faults: &Faults) -> Option<Self> {
        legacy(source, faults);
        model.expect(&[BundleKind::Diffusion], faults);
        let part = Fields::top(&model.raw, faults).object("diffusion");
        let config = part.as_ref().map(DiffusionConfig::read);
        for (key, _) in &model.assets {
            faults.note(model.require(source, key).map(drop));
        }
        let find = |names: &Names| {
            let path = named(&model, names).or_else(|| probed(source, names.file));
            Some((names.component, path?))
        };
        let this = Self {
            components: COMPONENTS.iter().filter_map(find).collect(),
            config: config?,
            model: Some(model),
        };
        this.some_mode(faults);
        Some(this)
    }

    /// What file names say, where there is no metadata.
    fn detected(source: &dyn Source, faults: &Faults) -> Self {
        legacy(source, faults);
        let files = source.list("").unwrap_or_default();
        let mut components: Vec<(DiffusionComponent, String)> = Vec::new();
        for file in files {
            let component = detect(&file);
            if let Some(c) = component.filter(|c| components.iter().all(|(have, _)| have != c)) {
                components.push((c, file));
            }
        }
        let this = Self {
            model: None,
            config: DiffusionConfig::default(),
            components,
        };
        this.some_mode(faults);
        this
    }

    /// The path of a component.
    pub fn component(&self, component: DiffusionComponent) -> Option<&str> {
        let found = self.components.iter().find(|(c, _)| *c == component);
        found.map(|(_, path)| path.as_str())
    }

    /// The modes whose components are all there, the best first.
    pub fn modes(&self) -> impl Iterator<Item = DiffusionMode> {
        let whole =
            |needs: &[DiffusionComponent]| needs.iter().all(|&c| self.component(c).is_some());
        let modes = MODES.iter().filter(move |(_, needs, _)| whole(needs));
        modes.map(|(mode, _, _)| *mode)
    }

    fn some_mode(&self, faults: &Faults) {
        if self.modes().next().is_none() {
            let needs: Vec<&str> = MODES.iter().map(|(_, _, needs)| *needs).collect();
            faults.add(BundleError::MissingComponent(needs.join(", or ")));
        }
    }
}

impl DiffusionConfig {
    fn read(fields: &Fields<'_>) -> Self {
        let text = |v: &serde_json::Value| v.as_str().map(str::to_owned);
        let dims = fields.get("rope_axes_dims", "a list of positive integers", sizes);
        Self {
            prediction_type: fields.get("prediction_type", "text", text),
            image_size: fields.size("image_size"),
            default_steps: fields.size("default_steps"),
            default_guidance_scale: fields.number("default_guidance_scale"),
            guidance_embeds: fields.flag("guidance_embeds"),
            batch_norm_eps: fields.number("batch_norm_eps"),
            rope_theta: fields.number("rope_theta"),
            rope_axes_dims: dims.unwrap_or_default(),
        }
    }
}

fn legacy(source: &dyn Source, faults: &Faults) {
    if source.exists("pipeline.json") {
        faults.add(BundleError::LegacyPipeline);
    }
}

/// The path that the metadata gives a component.
fn named(model: &ModelBundle, names: &Names) -> Option<String> {
    let mut roles = names.roles.iter();
    roles.find_map(|role| model.asset(role).ok().map(str::to_owned))
}

/// The file that has the exporter's name for a component.
fn probed(source: &dyn Source, file: &str) -> Option<String> {
    let spelled = ["aimodel", "aimodelc"].map(|end| format!("{file}.{end}"));
    spelled.into_iter().find(|name| source.exists(name))
}

/// The component that a file's name means.
fn detect(file: &str) -> Option<DiffusionComponent> {
    let (stem, end) = file.rsplit_once('.')?;
    if !matches!(end, "aimodel" | "aimodelc") {
        return None;
    }
    let stem = stem.to_ascii_lowercase().replace(['_', '-'], "");
    let (_, component) = MARKS.iter().find(|(mark, _)| stem.contains(mark))?;
    let small = stem.contains("half") || stem.contains("512");
    let half = HALVES.iter().find(|(whole, _)| whole == component);
    match (small, half) {
        (true, Some((_, half))) => Some(*half),
        _ => Some(*component),
    }
}
