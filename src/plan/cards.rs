//! GPUs, as their data sheets and the driver describe them.

use super::subject::PlanError;
use crate::device::requirements::CAPABILITY_AT_LEAST;

/// A card.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Card {
    pub name: &'static str,
    /// Memory as the driver reports it, MiB.
    pub memory_mib: u64,
    /// Dense bf16 matrix products with f32 sums, TFLOP/s; none: the card has no bf16.
    pub bf16_tflops: Option<f64>,
    /// f32 products, TFLOP/s.
    pub f32_tflops: f64,
    /// Memory bandwidth, GB/s.
    pub bandwidth: f64,
    /// Compute capability.
    pub capability: (u32, u32),
    /// The memory is the host's, too.
    pub unified: bool,
}

impl Card {
    pub fn memory_bytes(&self) -> u64 {
        self.memory_mib << 20
    }

    /// Why it cannot train this policy, whatever its memory.
    pub fn refusal(&self) -> Option<String> {
        let ((major, minor), (needed, step)) = (self.capability, CAPABILITY_AT_LEAST);
        let why = || format!("no bf16: compute capability {major}.{minor}, {needed}.{step} is needed");
        self.bf16_tflops.is_none().then(why)
    }
}

const fn card(name: &'static str, memory_mib: u64, tflops: [f64; 2], bandwidth: f64, capability: (u32, u32)) -> Card {
    let [bf16, f32_tflops] = tflops;
    Card { name, memory_mib, bf16_tflops: Some(bf16), f32_tflops, bandwidth, capability, unified: false }
}

const fn unified(card: Card) -> Card {
    Card { unified: true, ..card }
}

const fn without_bf16(card: Card) -> Card {
    Card { bf16_tflops: None, ..card }
}

/// Sources: NVIDIA's data sheets (dense, no sparsity; boards that halve f32 accumulation by the halved figure), memory
/// by `nvidia-smi`. Jetsons: the GPU's share of the quoted figures, memory as the system sees it.
pub const CARDS: [Card; 20] = [
    unified(card("AGX Orin 32GB", 30_600, [27.0, 3.4], 204.8, (8, 7))),
    unified(card("AGX Orin 64GB", 62_840, [42.5, 5.3], 204.8, (8, 7))),
    card("RTX 3090", 24_576, [71.0, 35.6], 936.0, (8, 6)),
    card("RTX 4090", 24_564, [165.2, 82.6], 1008.0, (8, 9)),
    card("RTX 5090", 32_607, [209.5, 104.8], 1792.0, (12, 0)),
    card("L4", 23_034, [121.0, 30.3], 300.0, (8, 9)),
    card("L40S", 46_068, [362.0, 91.6], 864.0, (8, 9)),
    card("A40", 46_068, [149.7, 37.4], 696.0, (8, 6)),
    card("RTX A6000", 49_140, [154.8, 38.7], 768.0, (8, 6)),
    card("A100 40GB", 40_960, [312.0, 19.5], 1555.0, (8, 0)),
    card("A100 80GB", 81_920, [312.0, 19.5], 2039.0, (8, 0)),
    card("H100 PCIe", 81_559, [756.0, 51.2], 2039.0, (9, 0)),
    card("H100 SXM", 81_559, [989.0, 66.9], 3352.0, (9, 0)),
    card("GH200", 97_871, [989.0, 66.9], 4022.0, (9, 0)),
    unified(card("Thor", 125_770, [258.0, 8.1], 273.0, (11, 0))),
    card("H200", 143_771, [989.0, 66.9], 4800.0, (9, 0)),
    card("B200", 183_359, [2250.0, 75.0], 8000.0, (10, 0)),
    without_bf16(card("T4", 15_360, [0.0, 8.1], 320.0, (7, 5))),
    without_bf16(card("V100 16GB", 16_384, [0.0, 15.7], 900.0, (7, 0))),
    without_bf16(card("V100 32GB", 32_768, [0.0, 15.7], 900.0, (7, 0))),
];

/// Letters and digits alone, in lower case: "NVIDIA A100-SXM4-80GB" and "a100 80gb" have the same words.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The words of a name, in lower case.
fn words(name: &str) -> Vec<String> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect()
}

/// Whether a word of a card's name tells its memory or its form, not the card; a Jetson's driver says "Orin" alone.
fn is_variant(word: &str) -> bool {
    word.ends_with("gb") || ["agx", "sxm", "pcie"].contains(&word)
}

/// Whether `name`, in words, is the driver's for `card`: an "RTX A4000" is no A40, an "L40S" no L4.
fn is_named(name: &[String], card: &Card) -> bool {
    words(card.name).iter().filter(|word| !is_variant(word)).all(|word| name.contains(word))
}

/// The card that a person means, by a part of its name or by the driver's ("NVIDIA A100-SXM4-80GB").
///
/// # Errors
/// No card has that name, or several have; the error knows which, else the nearest.
pub fn named(asked: &str) -> Result<&'static Card, PlanError> {
    let wanted = plain(asked);
    if let Some(exact) = CARDS.iter().find(|card| plain(card.name) == wanted) {
        return Ok(exact);
    }
    let mut meant: Vec<&Card> = CARDS.iter().filter(|card| plain(card.name).contains(&wanted)).collect();
    if meant.is_empty() {
        let name = words(asked);
        meant = CARDS.iter().filter(|card| is_named(&name, card)).collect();
        // "sxm4" tells the form "SXM".
        let told = |word: &String| is_variant(word) && name.iter().any(|other| other.starts_with(word.as_str()));
        let told: Vec<&Card> = meant.iter().copied().filter(|card| words(card.name).iter().any(told)).collect();
        if !told.is_empty() {
            meant = told;
        }
    }
    match meant.as_slice() {
        [card] => return Ok(card),
        // Without a letter or digit: every card.
        _ if wanted.is_empty() => meant.clear(),
        [] => meant.extend(nearest(&wanted)),
        _ => {}
    }
    Err(PlanError::UnknownCard {
        asked: asked.to_owned(),
        near: meant.iter().map(|card| card.name).collect(),
        known: CARDS.map(|card| card.name).join(", "),
    })
}

fn nearest(wanted: &str) -> Option<&'static Card> {
    let scored = CARDS.iter().map(|card| (strsim::jaro_winkler(&plain(card.name), wanted), card));
    scored.filter(|(score, _)| *score > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, card)| card)
}

/// How far the memory of a card may be from that of the table, as a share: more is another card of the same name, such
/// as a laptop's.
const OTHER_MEMORY: f64 = 0.25;

/// The card that the driver describes, by its name and its memory ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB").
/// None: the table does not have it, so nothing is known of its speed.
pub fn detected(name: &str, total_bytes: u64) -> Option<&'static Card> {
    let driver = words(name);
    let off = |card: &Card| card.memory_bytes().abs_diff(total_bytes);
    let pcie = driver.iter().any(|word| word == "pcie");
    CARDS
        .iter()
        .filter(|card| is_named(&driver, card))
        .filter(|card| off(card) as f64 <= OTHER_MEMORY * card.memory_bytes() as f64)
        // The nearest memory, in steps that tell sizes apart and not reserves; then the form.
        .min_by_key(|card| (off(card) >> 32, card.name.ends_with("PCIe") != pcie))
}
