//! The whole processor against LeRobot's, and its refusals.

use std::sync::Arc;

use super::testing::{Golden, close, close_relatively};
use super::*;
use crate::dataset::stats::FeatureStats;

const TOP: &str = "observation.images.top";
const WRIST: &str = "observation.images.wrist";
const SIDE: &str = "observation.images.side";

fn statistics() -> Statistics {
    let golden =
        Golden::open("preprocessing/processors-pi05/policy_preprocessor_step_3_normalizer_processor.safetensors");
    let feature = |name: &str| {
        let read = |stat: &str| golden.f32(&format!("{name}.{stat}")).into_iter().map(f64::from).collect::<Vec<_>>();
        FeatureStats { count: 143, q01: Some(read("q01")), q99: Some(read("q99")), ..FeatureStats::default() }
    };
    Statistics::from([(STATE.to_owned(), feature(STATE)), (ACTION.to_owned(), feature(ACTION))])
}

fn spec() -> ProcessorSpec {
    ProcessorSpec {
        kind: PolicyKind::Pi05,
        cameras: [TOP, WRIST, SIDE].map(str::to_owned).to_vec(),
        empty_cameras: 1,
        rename: BTreeMap::new(),
        image: ImageSpec { height: 56, width: 56, resize: Resize::Bilinear, pad: Pad::Center },
        state_mode: NormMode::Quantiles,
        action_mode: NormMode::Quantiles,
        state_dim: 8,
        action_dim: 7,
        max_state_dim: 32,
        max_action_dim: 32,
        chunk_size: 10,
        state_cond: false,
        tokenizer_max_length: 200,
        long_prompts: LongPrompts::Refuse,
        vocab_size: 1024,
        tasks: vec!["Pick up the red cube and place it in the bin.".into(), "push_the green block\nto the left".into()],
    }
}

fn processor(spec: ProcessorSpec) -> Processor {
    Processor::new(spec, &statistics(), Tokenizer::builtin().unwrap()).unwrap()
}

/// The recorded camera frame of a dataset index, turned from CHW to HWC as a decoder gives it.
fn frame(frames: &Golden, index: i64, camera: &str) -> Arc<RgbFrame> {
    let name = format!("frame.{index}.{camera}");
    let shape = frames.shape(&name);
    let planes = frames.u8(&name);
    let pixels = shape[1] * shape[2];
    let data = (0..pixels).flat_map(|p| [planes[p], planes[pixels + p], planes[2 * pixels + p]]).collect();
    Arc::new(RgbFrame { height: shape[1], width: shape[2], data })
}

/// Row `row` of the end-to-end recording as a sample. Index 38 has no recorded frame: it gets black images.
fn sample(golden: &Golden, frames: &Golden, row: usize) -> Sample {
    let index = golden.i64("indices")[row];
    let task =
        if index < 40 { "Pick up the red cube and place it in the bin." } else { "push_the green block\nto the left" };
    let image = |camera: &str, height, width| {
        let recorded = (index != 38).then(|| frame(frames, index, camera));
        recorded.unwrap_or_else(|| Arc::new(RgbFrame { height, width, data: vec![0; height * width * 3] }))
    };
    Sample {
        index: index as usize,
        episode: 0,
        frame: 0,
        delays: vec![0],
        valid: vec![true],
        // Out of order on purpose: names decide.
        images: vec![(WRIST.into(), image(WRIST, 80, 112)), (TOP.into(), image(TOP, 96, 96))],
        state: golden.f32("raw.state")[row * 8..(row + 1) * 8].to_vec(),
        actions: golden.f32("raw.action")[row * 70..(row + 1) * 70].to_vec(),
        action_is_pad: golden.u8("raw.action_is_pad")[row * 10..(row + 1) * 10].iter().map(|&p| p == 1).collect(),
        task: task.into(),
    }
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn samples_become_the_reference_batch_and_actions_come_back() {
    let golden = Golden::open("preprocessing/end_to_end_pi05.safetensors");
    let frames = Golden::open("datasets/v30-av1.golden-frames.safetensors");
    let processor = processor(spec());
    let prepared: Vec<Prepared> =
        (0..3).map(|row| processor.prepare(&sample(&golden, &frames, row)).unwrap()).collect();
    let (batch, targets) = processor.collate(&prepared, TokenPadding::Fixed, &Device::Cpu).unwrap();

    let tokens: Vec<u32> = batch.tokens.flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(tokens.iter().map(|&id| i64::from(id)).collect::<Vec<_>>(), golden.i64("pre.tokens"));
    let mask = golden.u8("pre.token_mask");
    for (row, &length) in batch.token_lengths.iter().enumerate() {
        assert_eq!(mask[row * 200..(row + 1) * 200].iter().filter(|&&m| m == 1).count(), length);
    }

    let state = flat(&batch.state.narrow(1, 0, 8).unwrap());
    close_relatively(&state, &golden.f32("pre.state"), 1e-6, "state");
    assert!(flat(&batch.state.narrow(1, 8, 24).unwrap()).iter().all(|&x| x == 0.0));
    let actions = flat(&targets.actions.narrow(2, 0, 7).unwrap());
    close_relatively(&actions, &golden.f32("pre.action"), 1e-6, "actions");
    assert_eq!(flat(&targets.is_pad), golden.f32("raw.action_is_pad"));

    // The third camera is nowhere: left out rather than fed as a masked black image.
    assert_eq!(batch.images.len(), 2);
    assert_eq!(batch.image_masks, [[true; 3], [true; 3]]);
    for camera in 0..2 {
        let reference = golden.tensor(&format!("image.{camera}.pixels"));
        for row in [0, 2] {
            let (ours, theirs) = (batch.images[camera].get(row).unwrap(), reference.get(row).unwrap());
            close(&flat(&ours), &flat(&theirs), 2e-6, &format!("camera {camera}, row {row}"));
        }
    }

    let network = Tensor::cat(
        &[golden.tensor("actions_normalized").clone(), Tensor::zeros((3, 10, 25), DType::F32, &Device::Cpu).unwrap()],
        2,
    )
    .unwrap();
    let real = processor.unnormalise_actions(&network).unwrap();
    assert_eq!(real.dims(), [3, 10, 7]);
    close_relatively(&flat(&real), &golden.f32("actions"), 1e-6, "actions in real units");
}

#[test]
fn rows_are_as_long_as_the_longest_prompt_or_fixed_and_lone_cameras_are_masked() {
    let golden = Golden::open("preprocessing/end_to_end_pi05.safetensors");
    let frames = Golden::open("datasets/v30-av1.golden-frames.safetensors");
    let processor = processor(spec());
    let mut lacking = sample(&golden, &frames, 0);
    lacking.images.remove(0);
    let error = processor.prepare(&lacking).unwrap_err();
    assert!(matches!(error, ProcessorError::Cameras { .. }), "two slots empty, one allowed: {error}");

    let relaxed = Processor { spec: ProcessorSpec { empty_cameras: 2, ..spec() }, ..processor };
    let prepared = [relaxed.prepare(&lacking).unwrap(), relaxed.prepare(&sample(&golden, &frames, 2)).unwrap()];
    let (batch, _) = relaxed.collate(&prepared, TokenPadding::Longest, &Device::Cpu).unwrap();
    assert_eq!(batch.tokens.dims()[1], *batch.token_lengths.iter().max().unwrap());
    assert_eq!(batch.image_masks, [[true, true], [false, true]]);
    assert!(flat(&batch.images[1].get(0).unwrap()).iter().all(|&p| p == image::PAD));
    assert!(matches!(relaxed.collate(&[], TokenPadding::Longest, &Device::Cpu), Err(ProcessorError::EmptyBatch)));
}

#[test]
fn state_conditioning_takes_the_state_out_of_the_prompt() {
    let processor = processor(ProcessorSpec { state_cond: true, cameras: vec![], ..spec() });
    let observation = processor.observe(&[], &[0.25; 8], "push_it\n").unwrap();
    assert_eq!(observation.prompt, "Task: push it;\nAction: ");
    let length = processor.prompt_length("push_it\n", &[0.25; 8]).unwrap();
    assert_eq!((length.tokens, length.limit, length.excess()), (observation.tokens.len(), 200, 0));
}

#[test]
fn refusals_name_the_sample_the_feature_and_the_tasks() {
    let golden = Golden::open("preprocessing/end_to_end_pi05.safetensors");
    let frames = Golden::open("datasets/v30-av1.golden-frames.safetensors");
    let processor = processor(spec());
    let message = |change: fn(&mut Sample)| {
        let mut broken = sample(&golden, &frames, 2);
        change(&mut broken);
        crate::error::Failure::from(processor.prepare(&broken).unwrap_err()).message()
    };
    let text = message(|s| s.task = " \n".into());
    assert!(
        text.starts_with("the task text is empty (dataset index 76)") && text.contains("push_the green block"),
        "{text}"
    );
    assert_eq!(message(|s| s.state[3] = f32::NAN), "observation.state[3] is NaN (dataset index 76)");
    assert_eq!(
        message(|s| s.state.truncate(6)),
        "observation.state: 6 values where the policy takes 8 (dataset index 76)"
    );
    assert_eq!(message(|s| s.actions.truncate(63)), "action: 63 values where the policy takes 70 (dataset index 76)");
    let text = message(|s| s.task = "word ".repeat(400));
    assert!(
        text.contains("the limit tokenizer_max_length is 200") && text.contains("data.long_prompts=cut_task"),
        "{text}"
    );
    let text = message(|s| s.images[0].1 = Arc::new(RgbFrame { height: 4, width: 4, data: vec![0; 47] }));
    assert!(text.starts_with("image observation.images.wrist: 47 values, but 4 × 4 pixels"), "{text}");
}

#[test]
fn a_foreign_tokenizer_is_caught_by_its_ids() {
    let processor = processor(ProcessorSpec { vocab_size: 100, cameras: vec![], ..spec() });
    let error = processor.observe(&[], &[0.25; 8], "pick up the cube").unwrap_err();
    assert!(matches!(error, ProcessorError::Vocabulary { vocab_size: 100, .. }), "{error}");
}

#[test]
fn statistics_of_another_width_are_refused_at_the_start() {
    let error = Processor::new(ProcessorSpec { state_dim: 6, ..spec() }, &statistics(), Tokenizer::builtin().unwrap())
        .unwrap_err();
    assert!(matches!(error, ProcessorError::Length { found: 8, expected: 6, .. }), "{error}");
    let endless = ProcessorSpec { tokenizer_max_length: usize::MAX, ..spec() };
    let error = Processor::new(endless, &statistics(), Tokenizer::builtin().unwrap()).unwrap_err();
    assert!(matches!(error, ProcessorError::TokenLimit { .. }));
    let wide = ProcessorSpec { state_dim: 33, ..spec() };
    assert!(Processor::new(wide, &statistics(), Tokenizer::builtin().unwrap()).is_err());
}
