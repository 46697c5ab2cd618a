#!/usr/bin/env python3
"""What LeRobot computes from a checkpoint and a dataset of ours, with nothing of ours in between.

  lerobot_peer.py CHECKPOINT DATASET DRAWS.safetensors OUT.safetensors [--adapter DIR]

CHECKPOINT is a `pretrained_model/` folder, DATASET a LeRobot dataset directory. DRAWS holds `indices` i64 [B] (dataset
frames), `noise` f32 [B, H, max_action_dim] and `time` f32 [B]. LeRobot reads the dataset, runs the checkpoint's own
pre-processor, samples a chunk with the given noise, runs the post-processor, and computes the training loss with the
given noise and time. OUT gets `actions_normalised` [B, H, A], `actions` [B, H, A] and `loss` [1]. With --adapter, PEFT
loads that adapter onto CHECKPOINT first.

Needs Python >= 3.12 with lerobot 0.6.1, transformers 5.5.4, peft 0.21.2.
"""
import argparse
import contextlib
import io
import json
import os
import pathlib
import shutil
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import default_collate

import lerobot.policies.pi05.modeling_pi05 as pi05
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies.factory import make_pre_post_processors


def build_with(dims):
    """LeRobot knows its two named sizes only: let its constructors build towers of `dims`."""
    build_vlm, build_expert = pi05.PaliGemmaForConditionalGenerationWithPiGemma, pi05.PiGemmaForCausalLM

    def gemma_config(variant):
        tower = dims["vlm" if variant == "gemma_2b" else "expert"]
        names = ("width", "depth", "mlp_dim", "num_heads", "num_kv_heads", "head_dim")
        return pi05.GemmaConfig(**{name: tower[name] for name in names})

    def vlm(config):
        config.text_config.vocab_size = config._vocab_size = config.image_token_index = dims["vocab_size"]
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "patch_size"):
            setattr(config.vision_config, name, dims["vision"][name])
        config.vision_config.projection_dim = dims["vlm"]["width"]
        return build_vlm(config=config)

    def expert(config):
        config.vocab_size = dims["vocab_size"]
        return build_expert(config=config)

    pi05.get_gemma_config = gemma_config
    pi05.PaliGemmaForConditionalGenerationWithPiGemma = vlm
    pi05.PiGemmaForCausalLM = expert


def load_policy(folder):
    config = json.loads((folder / "config.json").read_text())
    if "tiny_dims" in config:
        build_with(config["tiny_dims"])
    # LeRobot refuses configuration keys that it does not know: the sizes of a network that it cannot build by itself.
    with tempfile.TemporaryDirectory() as copy:
        for file in folder.iterdir():
            if file.is_file():
                shutil.copy(file, copy)
        theirs = {key: value for key, value in config.items() if key != "tiny_dims"}
        (pathlib.Path(copy) / "config.json").write_text(json.dumps(theirs))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            policy = pi05.PI05Policy.from_pretrained(copy, strict=True)
    return policy.eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("dataset", type=pathlib.Path)
    parser.add_argument("draws")
    parser.add_argument("out")
    parser.add_argument("--adapter")
    arguments = parser.parse_args()

    policy = load_policy(arguments.checkpoint)
    config = policy.config
    if arguments.adapter:
        from peft import PeftModel

        policy = PeftModel.from_pretrained(policy, arguments.adapter).base_model.model.eval()

    pre, post = make_pre_post_processors(
        config,
        pretrained_path=str(arguments.checkpoint),
        preprocessor_overrides={
            "tokenizer_processor": {"tokenizer_name": str(arguments.checkpoint)},
            "device_processor": {"device": "cpu"},
        },
        postprocessor_overrides={"device_processor": {"device": "cpu"}},
    )
    meta = LeRobotDataset("local/peer", root=arguments.dataset)
    deltas = {"action": [step / meta.fps for step in range(config.chunk_size)]}
    dataset = LeRobotDataset("local/peer", root=arguments.dataset, delta_timestamps=deltas)

    draws = load_file(arguments.draws)
    batch = pre(default_collate([dataset[int(index)] for index in draws["indices"]]))
    with torch.no_grad():
        normalised = policy.predict_action_chunk(batch, noise=draws["noise"])
        actions = post(normalised)
        policy.model.sample_noise = lambda shape, device: draws["noise"]
        policy.model.sample_time = lambda size, device: draws["time"]
        loss, _ = policy.forward(batch)
    out = {"actions_normalised": normalised, "actions": actions, "loss": loss.reshape(1)}
    save_file({name: tensor.float().contiguous() for name, tensor in out.items()}, arguments.out)
    print(f"actions {tuple(actions.shape)}, loss {loss.item():.7f}")


if __name__ == "__main__":
    main()
