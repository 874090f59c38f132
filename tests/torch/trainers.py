"""Trainers of tiny models on made-up texts, which tests and the processes that they start share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.torch.families import FAMILIES, TOKENS, transformers
from tests.torch.library import torch

# isort: split
from dpgrain.torch.privacy_arguments import PrivacyArguments
from dpgrain.torch.trainer import Trainer

datasets = pytest.importorskip("datasets", reason="datasets is not installed")
RECORDS, USERS = 36, 12


def texts(seed: int = 1, *, longest: int = 6) -> Any:
    torch.manual_seed(seed)
    lengths = torch.randint(2, longest + 1, (RECORDS,)).tolist()
    rows = [torch.randint(3, TOKENS, (length,)).tolist() for length in lengths]
    return datasets.Dataset.from_dict(
        {"input_ids": rows, "labels": rows, "author": [row // 3 for row in range(RECORDS)]}
    )


def trainer(folder: Path, data: Any = None, *, lora: bool = False, **given: Any) -> Trainer:
    torch.manual_seed(2)
    stated = {
        "max_steps": 4,
        "save_steps": 2,
        "learning_rate": 0.1,
        "gradient_accumulation_steps": 2,
        "lr_scheduler_type": "constant",
        **given.pop("args", {}),
    }
    args = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        optim="sgd",
        **stated,
    )
    asked = {"n_users": USERS, "noise_multiplier": 0.7, "users_column": "author", "random_state": 3}
    privacy = PrivacyArguments(**{**asked, **given.pop("privacy", {})})
    model = given.pop("model", None) or FAMILIES["gpt2"].made(lora=lora)
    data = texts() if data is None else data
    return Trainer(model, args, privacy=privacy, train_dataset=data, **given)


def weights(model: Any) -> dict[str, Any]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}
