//! `data.*` and `normalization.*`.

use super::Default::{Absent, Is};
use super::Effect::Nothing;
use super::Kind::{Choice, Count, Episodes, Real, Renames, Spelled, Switch, Text, Texts};
use super::{Key, NOT_NEGATIVE, same};

const MODES: super::Kind = Spelled(
    &["quantiles", "quantile10", "mean_std", "min_max", "identity"],
    &[("quantile", "quantiles"), ("meanstd", "mean_std"), ("minmax", "min_max"), ("none", "identity")],
);

pub(super) static KEYS: &[Key] = &[
    Key::new(
        "data.repo",
        Text,
        Absent,
        "The LeRobot dataset: a path, or owner/name below data.root; not set: bundled/tabletop, \
         demonstrations of the simulated arm (there is also bundled/reach, a small task seen from above).",
    )
    .yaml(&[same("dataset.repo_id")])
    .also(&["dataset", "dataset_path", "dataset_repo_id", "data.path"]),
    Key::new("data.root", Text, Absent, "The dataset's own directory, or the parent of owner/name.")
        .yaml(&[same("dataset.root")])
        .also(&["data_root", "dataset_root"]),
    Key::new(
        "data.episodes",
        Episodes,
        Absent,
        "Episodes to use, in this order: a list, or ranges (\"0..16,18..49\" with both ends, \"0:17\" without its end); not set: all.",
    )
    .yaml(&[same("dataset.episodes")]),
    Key::ignored(&[same("dataset.revision")], "datasets are read from local directories, which have no revisions"),
    Key::new("data.cameras", Texts, Absent, "Cameras to use, by feature name; not set: all that are not depth maps.")
        .yaml(&[same("dataset.cameras")])
        .also(&["camera_names", "image_keys"]),
    Key::new("data.rename", Renames, Is("{}"), "Feature of the dataset = feature of the policy.")
        .yaml(&[same("rename_map")])
        .also(&["dataset.rename_map", "data.rename_map"]),
    Key::new("data.workers", Count { min: 0 }, Is("4"), "Loader threads; their number changes no sample.")
        .yaml(&[same("num_workers")])
        .also(&["dataloader_num_workers"]),
    Key::ignored(&[same("tolerance_s")], "frames are found by their number in the episode, not by a time"),
    Key::new("data.frame_cache", Switch, Is("false"), "Decode every frame once into a cache on disk.")
        .yaml(&[same("dataset.frame_cache")]),
    Key::new(
        "data.long_prompts",
        Choice(&["refuse", "cut_task"]),
        Is("\"refuse\""),
        "Prompts beyond model.tokenizer_max_length: refuse, or cut_task (shorten the task text).",
    )
    .yaml(&[same("dataset.long_prompts")]),
    Key::new(
        "data.decoder",
        Spelled(&["native"], &[("torchcodec", "native"), ("pyav", "native"), ("video_reader", "native")]),
        Is("\"native\""),
        "Video decoder.",
    )
    .yaml(&[same("dataset.video_backend")])
    .effect(Nothing("there is one decoder, built in")),
    Key::new("data.augment.enabled", Switch, Is("false"), "Random image transforms (colour, sharpness, small affine).")
        .yaml(&[same("dataset.image_transforms.enable")])
        .also(&["augment", "image_augmentation"]),
    Key::new("data.augment.max_transforms", Count { min: 1 }, Is("3"), "Transforms that are applied to an image at most.")
        .yaml(&[same("dataset.image_transforms.max_num_transforms")]),
    Key::new("data.augment.random_order", Switch, Is("false"), "Apply them in random order.")
        .yaml(&[same("dataset.image_transforms.random_order")]),
    Key::new("normalization.state", MODES, Is("\"quantiles\""), "How states are scaled: quantiles, quantile10, mean_std, min_max, identity.")
        .yaml(&[same("policy.normalization_mapping.STATE")])
        .yaml_default(Is("\"mean_std\"")),
    Key::new("normalization.action", MODES, Is("\"quantiles\""), "How actions are scaled.")
        .yaml(&[same("policy.normalization_mapping.ACTION")])
        .yaml_default(Is("\"mean_std\"")),
    Key::new(
        "normalization.min_range",
        Real(NOT_NEGATIVE),
        Is("0.02"),
        "Narrowest range of a dimension that moves at all, in the data's unit; narrower ones are widened. 0: no floor.",
    ),
    Key::only(&[same("policy.normalization_mapping.VISUAL")], &["identity"], "images are scaled to −1…1 and nothing else"),
    Key::ignored(&[same("dataset.streaming")], "files are read in place; only those of the selected episodes are opened"),
    Key::ignored(&[same("dataset.use_imagenet_stats")], "images are not scaled by statistics"),
    Key::only(
        &[same("dataset.image_transforms.tfs")],
        &["null"],
        "the transforms and their ranges are fixed (LeRobot's defaults); leave tfs out",
    ),
];
