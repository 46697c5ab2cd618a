#!/usr/bin/env python3
"""Milliseconds of one training step in LeRobot, on this machine's CPU, for a checkpoint folder of ours.

  lerobot_step.py CHECKPOINT [--batch 16] [--tokens 60] [--steps 40] [--threads 2]

Forward, backward, clipping and AdamW over all parameters, with random inputs of the checkpoint's shapes, f32. `--tokens`
is the length of the prompt: LeRobot itself always pads to the tokenizer's limit (200), so both lengths are worth a run.
Compare with `cargo bench --bench step` (ours).
"""
import argparse
import pathlib
import statistics
import time

import torch

from lerobot_peer import load_policy


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)

    policy = load_policy(arguments.checkpoint).train()
    config, batch = policy.config, arguments.batch
    inputs = {name: torch.rand(batch, *feature.shape) for name, feature in config.image_features.items()}
    inputs |= {
        "observation.state": torch.rand(batch, config.input_features["observation.state"].shape[0]),
        "observation.language.tokens": torch.randint(3, 1000, (batch, arguments.tokens)),
        "observation.language.attention_mask": torch.ones(batch, arguments.tokens, dtype=torch.bool),
        "action": torch.rand(batch, config.chunk_size, config.output_features["action"].shape[0]),
    }
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1.5e-3, betas=(0.9, 0.95))
    times = []
    for _ in range(arguments.steps):
        begun = time.perf_counter()
        loss, _ = policy.forward(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        times.append(1e3 * (time.perf_counter() - begun))
    warm = times[5:]
    print(f"{statistics.median(warm):.1f} ms a step (min {min(warm):.1f}, max {max(warm):.1f}), batch {batch}, {arguments.tokens} tokens")


if __name__ == "__main__":
    main()
