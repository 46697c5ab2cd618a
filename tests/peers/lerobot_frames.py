#!/usr/bin/env python3
"""What LeRobot reads from a dataset of ours, with nothing of ours in between.

  lerobot_frames.py DATASET OUT.safetensors INDEX...

OUT gets, for the frames of the global INDEXes: `state` and `action` f32 [B, D], `timestamp` f32 [B], `episode_index` i64
[B], each camera `observation.images.…` u8 [B, 3, H, W] (LeRobot's 0…1 times 255, which must be whole numbers).

Needs Python >= 3.12 with lerobot 0.6.1 and its `dataset` extra.
"""
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from safetensors.torch import save_file
from torch.utils.data import default_collate

from lerobot.datasets.lerobot_dataset import LeRobotDataset


def main():
    root, out, *indices = sys.argv[1:]
    dataset = LeRobotDataset("local/peer", root=root)
    batch = default_collate([dataset[int(index)] for index in indices])
    found = {
        "state": batch["observation.state"].float(),
        "action": batch["action"].float(),
        "timestamp": batch["timestamp"].float(),
        "episode_index": batch["episode_index"].long(),
    }
    for camera in dataset.meta.camera_keys:
        levels = batch[camera] * 255
        assert (levels - levels.round()).abs().max() < 1e-3, camera
        found[camera] = levels.round().to(torch.uint8)
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, out)
    print(dataset.num_episodes, len(dataset), dataset.fps, " ".join(dataset.meta.video_keys), set(batch["task"]))


if __name__ == "__main__":
    main()
