"""Tiny models of Hugging Face's families, created from configurations, with synthetic records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.torch.library import torch

WHY = "transformers is not installed: pip install 'dpgrain[transformers]'"
transformers = pytest.importorskip("transformers", reason=WHY)
peft = pytest.importorskip("peft", reason=WHY)

TOKENS, LENGTH, CLASSES = 29, 7, 3
_TEXT = {"vocab_size": TOKENS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
}
_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BOTH_SIDES = {
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 12,
    "decoder_ffn_dim": 12,
}
_GROUPED = {"num_key_value_heads": 1, "max_position_embeddings": 32}


def masked_tokens(rows: int) -> dict[str, Any]:
    """Tokens with padding at the end, of other lengths from record to record."""
    tokens = torch.randint(3, TOKENS, (rows, LENGTH))
    lengths = torch.randint(2, LENGTH + 1, (rows,))
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return {"input_ids": tokens * mask, "attention_mask": mask}


def pairs_of_tokens(rows: int) -> dict[str, Any]:
    """Tokens of two languages."""
    return {**masked_tokens(rows), "decoder_input_ids": torch.randint(3, TOKENS, (rows, 5))}


def images(rows: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(rows, 3, 8, 8)}


def sounds(rows: int) -> dict[str, Any]:
    return {"input_values": torch.randn(rows, 220)}


def spectra(rows: int) -> dict[str, Any]:
    return {
        "input_features": torch.randn(rows, 8, 20),
        "decoder_input_ids": torch.randint(3, TOKENS, (rows, 5)),
    }


@dataclass(frozen=True)
class Family:
    """A family of models."""

    model: str
    config: str
    options: Mapping[str, Any]
    draw: Callable[[int], dict[str, Any]]
    adapted: tuple[str, ...]

    def made(self, *, lora: bool = False, **more: Any) -> Any:
        """A model with random weights and without a cache; with LoRA adapters if requested."""
        torch.manual_seed(5)
        config = getattr(transformers, self.config)(**{**self.options, **more})
        model = getattr(transformers, self.model)(config)
        model.config.use_cache = False
        if lora:
            adapters = peft.LoraConfig(r=2, lora_alpha=4, target_modules=list(self.adapted))
            model = peft.get_peft_model(model, adapters)
        # Scales of 1 and adapters of 0 would hide what they are multiplied with.
        generator = torch.Generator().manual_seed(6)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
        return model.train()


_BERT = {**_TEXT, **_SIZES, **_DROPOUT, "max_position_embeddings": 16, "num_labels": CLASSES}
_LLAMA = {**_TEXT, **_SIZES, **_GROUPED}
_QV = ("q_proj", "v_proj")
# Names since version 5 of transformers, and before.
_OF_PICTURES = (*_QV, "query", "value")

FAMILIES: Mapping[str, Family] = {
    "gpt2": Family(
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            **_TEXT,
            "n_embd": 8,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 16,
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
        },
        masked_tokens,
        ("c_attn",),
    ),
    "bert": Family(
        "BertForSequenceClassification", "BertConfig", _BERT, masked_tokens, ("query", "value")
    ),
    "distilbert": Family(
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            "vocab_size": TOKENS,
            "dim": 8,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 12,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "max_position_embeddings": 16,
        },
        masked_tokens,
        ("q_lin", "v_lin"),
    ),
    "llama": Family("LlamaForCausalLM", "LlamaConfig", _LLAMA, masked_tokens, _QV),
    "qwen": Family(
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {**_LLAMA, "head_dim": 4, "tie_word_embeddings": True},
        masked_tokens,
        _QV,
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        "T5Config",
        {
            "vocab_size": TOKENS,
            "d_model": 8,
            "d_kv": 4,
            "d_ff": 12,
            "num_layers": 2,
            "num_heads": 2,
            "dropout_rate": 0.0,
            "decoder_start_token_id": 0,
        },
        pairs_of_tokens,
        ("q", "v"),
    ),
    "vit": Family(
        "ViTForImageClassification",
        "ViTConfig",
        {**_SIZES, **_DROPOUT, "image_size": 8, "patch_size": 4, "num_labels": CLASSES},
        images,
        _OF_PICTURES,
    ),
    "gemma": Family(
        "GemmaForCausalLM", "GemmaConfig", {**_LLAMA, "head_dim": 4}, masked_tokens, _QV
    ),
    "bart": Family(
        "BartForConditionalGeneration",
        "BartConfig",
        {
            **_TEXT,
            **_BOTH_SIDES,
            "max_position_embeddings": 16,
            "dropout": 0.0,
            "scale_embedding": True,
        },
        pairs_of_tokens,
        _QV,
    ),
    "opt": Family(
        "OPTForCausalLM",
        "OPTConfig",
        {
            **_TEXT,
            "hidden_size": 8,
            "word_embed_proj_dim": 8,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 12,
            "max_position_embeddings": 16,
            "dropout": 0.0,
        },
        masked_tokens,
        _QV,
    ),
    "whisper": Family(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            **_TEXT,
            **_BOTH_SIDES,
            "num_mel_bins": 8,
            "max_source_positions": 10,
            "max_target_positions": 16,
            "decoder_start_token_id": 1,
            "begin_suppress_tokens": None,
            "suppress_tokens": None,
        },
        spectra,
        _QV,
    ),
    "wav2vec2": Family(
        "Wav2Vec2ForSequenceClassification",
        "Wav2Vec2Config",
        {
            **_SIZES,
            "hidden_dropout": 0.0,
            "activation_dropout": 0.0,
            "attention_dropout": 0.0,
            "feat_proj_dropout": 0.0,
            "final_dropout": 0.0,
            "layerdrop": 0.0,
            "mask_time_prob": 0.0,
            "apply_spec_augment": False,
            "conv_dim": (6, 8),
            "conv_kernel": (10, 3),
            "conv_stride": (5, 2),
            "num_conv_pos_embeddings": 4,
            "num_conv_pos_embedding_groups": 2,
            "num_feat_extract_layers": 2,
            "classifier_proj_size": 6,
            "num_labels": CLASSES,
        },
        sounds,
        _QV,
    ),
    "beit": Family(
        "BeitForImageClassification",
        "BeitConfig",
        {
            **_SIZES,
            **_DROPOUT,
            "image_size": 8,
            "patch_size": 4,
            "num_labels": CLASSES,
            "use_relative_position_bias": True,
            "drop_path_rate": 0.0,
        },
        images,
        _OF_PICTURES,
    ),
    "swin": Family(
        "SwinForImageClassification",
        "SwinConfig",
        {
            **_DROPOUT,
            "image_size": 8,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [2],
            "num_heads": [2],
            "window_size": 2,
            "drop_path_rate": 0.0,
            "num_labels": CLASSES,
        },
        images,
        _OF_PICTURES,
    ),
}


def every(*default: str) -> pytest.MarkDecorator:
    """Return the mark of a test of all families.

    Args:
        default: the families of the default tests; others wait for ``make test-all``.
    """
    cases = []
    for name, family in FAMILIES.items():
        marks = [] if name in default else [pytest.mark.slow(full=True)]
        cases.append(pytest.param(family, id=name, marks=marks))
    return pytest.mark.parametrize("family", cases)
